#!/usr/bin/env python3
"""Make a small Llama model with random weights, split over many safetensors shards.

The result is a normal Hugging Face model folder that `vllm serve FOLDER` loads.
The weights are random, so what it writes is gibberish.

    python make_model.py OUT                       # preset tiny: 64 shards, ~40 MB
    python make_model.py OUT --preset slow         # ~1.1 B parameters, 64 shards, ~2.3 GB
    python make_model.py OUT --layers 12 --hidden 512 --shards 20

Needs torch, safetensors and tokenizers (the environment that setup.sh makes has them).
"""

import argparse
import json
import pathlib
import sys
import sysconfig
import time

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PRESETS = {
    "tiny": {"hidden": 256, "inter": 1024, "layers": 16, "heads": 4, "kv_heads": 2, "vocab": 8192, "max_len": 4096},
    "slow": {"hidden": 2048, "inter": 5632, "layers": 22, "heads": 32, "kv_heads": 4, "vocab": 8192, "max_len": 8192},
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def corpus(extra, limit):
    """Text to train the tokenizer on: files given, or this Python's own library."""
    roots = [pathlib.Path(p) for p in extra] or [pathlib.Path(sysconfig.get_path("stdlib"))]
    seen = 0
    for root in roots:
        for f in [root] if root.is_file() else sorted(root.rglob("*")):
            if f.suffix not in (".py", ".txt", ".md", ".rst") or "site-packages" in f.parts or not f.is_file():
                continue
            text = f.read_text("utf-8", errors="ignore")
            seen += len(text)
            yield text
            if seen > limit:
                return


def make_tokenizer(vocab, files, limit=4_000_000):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(
        corpus(files, limit),
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tok


def shapes(a):
    """(name, shape) of every tensor, in the order of the layers."""
    head_dim = a.hidden // a.heads
    yield "model.embed_tokens.weight", (a.vocab, a.hidden)
    for i in range(a.layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (a.hidden,)
        yield p + "self_attn.q_proj.weight", (a.heads * head_dim, a.hidden)
        yield p + "self_attn.k_proj.weight", (a.kv_heads * head_dim, a.hidden)
        yield p + "self_attn.v_proj.weight", (a.kv_heads * head_dim, a.hidden)
        yield p + "self_attn.o_proj.weight", (a.hidden, a.heads * head_dim)
        yield p + "post_attention_layernorm.weight", (a.hidden,)
        yield p + "mlp.gate_proj.weight", (a.inter, a.hidden)
        yield p + "mlp.up_proj.weight", (a.inter, a.hidden)
        yield p + "mlp.down_proj.weight", (a.hidden, a.inter)
    yield "model.norm.weight", (a.hidden,)
    yield "lm_head.weight", (a.vocab, a.hidden)


def split(tensors, shards):
    """Cut the list into exactly `shards` runs of about the same number of bytes."""
    if len(tensors) < shards:
        sys.exit(f"{len(tensors)} tensors cannot fill {shards} shards: use more --layers")
    total = sum(torch.Size(s).numel() for _, s in tensors)
    out, cur, done = [], [], 0
    for k, (name, shape) in enumerate(tensors):
        cur.append((name, shape))
        done += torch.Size(shape).numel()
        left_t, left_s = len(tensors) - k - 1, shards - len(out) - 1
        if left_s and (left_t == left_s or done >= total * (len(out) + 1) / shards):
            out.append(cur)
            cur = []
    out.append(cur)
    assert len(out) == shards
    assert all(out)
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", type=pathlib.Path)
    ap.add_argument("--preset", choices=PRESETS, default="tiny")
    ap.add_argument("--shards", type=int, default=64)
    for k in PRESETS["tiny"]:
        ap.add_argument("--" + k.replace("_", "-"), type=int)
    ap.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    ap.add_argument("--std", type=float, default=0.02, help="spread of the random weights")
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--corpus", nargs="*", default=[], help="files or folders of text for the tokenizer")
    a = ap.parse_args()
    for k, v in PRESETS[a.preset].items():
        if getattr(a, k) is None:
            setattr(a, k, v)
    t0 = time.time()
    a.out.mkdir(parents=True, exist_ok=True)
    for old in a.out.glob("model*.safetensors*"):
        old.unlink()

    tok = make_tokenizer(a.vocab, a.corpus)
    tok.save(str(a.out / "tokenizer.json"))
    ids = {s: tok.token_to_id(s) for s in SPECIAL}

    def dump(name, obj):
        (a.out / name).write_text(json.dumps(obj, indent=2) + "\n")

    dump(
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "unk_token": None,
            "model_max_length": a.max_len,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    dump(
        "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": a.hidden,
            "intermediate_size": a.inter,
            "num_hidden_layers": a.layers,
            "num_attention_heads": a.heads,
            "num_key_value_heads": a.kv_heads,
            "head_dim": a.hidden // a.heads,
            "vocab_size": a.vocab,
            "max_position_embeddings": a.max_len,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "initializer_range": a.std,
            "bos_token_id": None,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "torch_dtype": a.dtype,
            "use_cache": True,
        },
    )
    dump(
        "generation_config.json",
        {
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "pad_token_id": ids["<|endoftext|>"],
            "do_sample": True,
            "temperature": 0.8,
            "top_p": 0.95,
        },
    )

    gen = torch.Generator().manual_seed(a.seed)
    dtype = getattr(torch, a.dtype)
    weight_map, total, params = {}, 0, 0
    for i, part in enumerate(split(list(shapes(a)), a.shards), 1):
        fn = f"model-{i:05d}-of-{a.shards:05d}.safetensors"
        data = {}
        for name, shape in part:
            t = torch.ones(shape, dtype=dtype) if len(shape) == 1 else (torch.randn(shape, generator=gen) * a.std).to(dtype)
            data[name] = t
            weight_map[name] = fn
            params += t.numel()
            total += t.numel() * t.element_size()
        save_file(data, str(a.out / fn), metadata={"format": "pt"})
    dump(
        "model.safetensors.index.json",
        {
            "metadata": {"total_size": total, "total_parameters": params},
            "weight_map": weight_map,
        },
    )
    print(
        f"{a.out}: {params / 1e6:.1f} M parameters, {total / 1e6:.1f} MB in {a.shards} shards, "
        f"vocabulary {tok.get_vocab_size()}, {time.time() - t0:.1f} s"
    )


if __name__ == "__main__":
    main()
