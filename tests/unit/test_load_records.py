"""Per-request arrays in pieces that the client takes, however long the replies are."""

import base64
import json
import zlib

import pytest

from tui.probe.load import PIECE_BYTES, frames, pieces
from tui.services.bench_generator import _arrays
from tui.wire.request_record import COMPLETED, RequestRecord
from tui.wire.summary import detail


def record(index: int, tokens: int, text: str = "") -> RequestRecord:
    made = RequestRecord(index, tokens)
    made.start = 1.7e9 + index
    # gaps that differ in their last bits have the longest decimal forms
    made.chunks.extend(made.start + 0.2 + k * 0.0200001907 for k in range(tokens))
    made.state, made.n_out, made.text = COMPLETED, tokens, text
    return made


@pytest.mark.parametrize(
    ("records", "least"),
    [
        ([record(i, 2) for i in range(2000)], 1),
        ([record(i, 8192, "word " * 8192) for i in reversed(range(12))], 2),
        ([record(i, 9, "\U0001f600" * 50_000) for i in range(16)], 3),
        ([record(0, 3), record(1, 180_000), record(2, 3)], 3),
        ([], 0),
    ],
)
def test_pieces_are_cut_by_bytes_and_make_the_whole(records: list[RequestRecord], least: int) -> None:
    cut = pieces(records)
    assert len(cut) >= least
    whole: dict[str, list[object]] = {}
    for piece, frame in zip(cut, frames(cut, 7, True), strict=True):
        assert frame["f"] == "records"
        assert frame["id"] == 7
        if len(piece) > 1:
            assert len(zlib.decompress(base64.b64decode(frame["z"]))) <= PIECE_BYTES
        for name, values in _arrays(frame["z"]).items():
            whole.setdefault(name, []).extend(values)
    if records:
        assert whole == json.loads(json.dumps(detail(records)))
