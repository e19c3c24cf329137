"""The frozen picture of a course, for screens, documents and the record."""

from dataclasses import dataclass

from msgspec.structs import replace

from tui.core.logs.course import Course
from tui.core.logs.state import Failure, Loader, LoadState, Phase


@dataclass(slots=True)
class Counts:
    """Lines read of the log, over all its starts."""

    lines: int = 0
    errors: int = 0
    warnings: int = 0
    restarts: int = 0


def picture(course: Course, counts: Counts, failure: Failure | None, last_line_at: float | None) -> LoadState:
    """What the course shows now, in the log's own clock."""
    bars = course.loaders.bars
    main = course.loaders.main
    return LoadState(
        engine=course.engine,
        version=course.version,
        model=course.model,
        served_names=course.served_names,
        phase=course.phase,
        ready=course.phase is Phase.READY,
        was_ready=course.was_ready,
        shards=main.loader() if main else None,
        loaders=tuple(bar.loader() for bar in bars),
        load_s=course.figure("load_s"),
        model_load_s=course.figure("model_load_s"),
        download_s=course.figure("download_s"),
        gib_per_gpu=course.figure("gib_per_gpu"),
        checkpoint_gib=course.checkpoint_gib,
        kv_tokens=_whole(course.figure("kv_tokens")),
        kv_gib_per_gpu=course.figure("kv_gib"),
        max_concurrency=course.figure("max_concurrency"),
        engines=course.data or (1 if course.engine and course.tensor else None),
        tensor_parallel=course.tensor,
        pipeline_parallel=course.pipeline,
        data_parallel=course.data,
        max_model_len=course.max_model_len,
        batched_tokens=course.batched_tokens,
        quantization=course.quantization,
        attention_backend=course.attention_backend,
        init_engine_s=course.figure("init_engine_s"),
        engine_started_at=course.engine_started_at,
        capture=course.capture(),
        started_at=course.started_at if course.start_seen or course.phase is Phase.STARTING else None,
        ready_at=course.ready_at,
        last_line_at=last_line_at,
        phases=course.phases(),
        serving=course.statistics.server,
        failure=failure,
        restarts=counts.restarts,
        lines=counts.lines,
        errors=counts.errors,
        warnings=counts.warnings,
        silences=tuple(course.longest_silences()),
        notes=tuple(course.notes.values()),
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def moved(load: LoadState, seconds: float) -> LoadState:
    """The same facts in another clock."""

    def later(at: float | None) -> float | None:
        return None if at is None else at + seconds

    def bar(loader: Loader | None) -> Loader | None:
        return None if loader is None else replace(loader, started_at=later(loader.started_at), last_at=later(loader.last_at))

    return replace(
        load,
        started_at=later(load.started_at),
        ready_at=later(load.ready_at),
        engine_started_at=later(load.engine_started_at),
        last_line_at=later(load.last_line_at),
        shards=bar(load.shards),
        loaders=tuple(moved_bar for one in load.loaders if (moved_bar := bar(one)) is not None),
        capture=bar(load.capture),
        phases=tuple(replace(span, started_at=later(span.started_at)) for span in load.phases),
        silences=tuple(replace(one, at=later(one.at)) for one in load.silences),
        serving=None if load.serving is None else replace(load.serving, at=later(load.serving.at)),
    )
