#!/usr/bin/env python3
"""Trains a small byte-level BPE with PyPI's `tokenizers`, and encodes texts with it: tests/golden/bpe/.

vocab.json and merges.txt are the plain form, tokenizer.json has special tokens and a space in front of each piece.
cases.json has a row for each text: its bytes in hexadecimal, the ids of the plain form, and those of tokenizer.json.
"""
import glob
import json
import os
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "bpe")
random.seed(5)

WORDS = ("the token of a text isn't what they've said it'd be we'll see I'm don't 'tis rock'n'roll größer façade naïve "
         "Straße привет мир слово Ελλάδα 日本語 テキスト 中文 한국어 العربية עברית हिन्दी ไทย 1234567890 3.14159 2024-01-01 "
         "٣٤٥ ²³ ½ Ⅷ x_1 foo(bar) a+b=c 😀 👩‍👩‍👧‍👦 é e\u0301 … — “quoted” ‘s’ ﬁ Ǆ").split(" ")
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\t", " \n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u0085", "\u200b", "\u2028"]
SPECIAL = ["<|endoftext|>", "<|end|>", "<|endof", "<pad>"]


def corpus():
    for name in sorted(glob.glob(os.path.join(HERE, "..", "..", "docs", "*.md")))[:12]:
        with open(name, encoding="utf-8") as file:
            yield file.read()[:20000]
    for _ in range(400):
        yield " ".join(random.choice(WORDS) for _ in range(12))


def any_character():
    kind = random.random()
    if kind < 0.4:
        return chr(random.randrange(0, 128))
    if kind < 0.6:
        return chr(random.randrange(128, 0x800))
    c = random.randrange(0x800, 0x30000 if kind < 0.97 else 0x110000)
    return "x" if 0xD800 <= c < 0xE000 else chr(c)


def texts():
    yield ""
    for word in WORDS + SPACES + SPECIAL:
        yield word
        yield " " + word
        yield word + " "
    for c in ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "''s", "!'s", " 's", "'", "x'", "'r", "'v", "'l",
              "'lll", "'red", "ab'cd's"]:
        yield c
    yield " " * 300
    yield "a" * 200
    yield " " * 70 + "word" + "\n" * 65 + "next"
    yield "<|endoftext|>one<|endoftext|><|end|>two <|endof<|endoftext|> <pad>three<pad>"
    yield "".join(chr(c) for c in range(0, 0x600))
    yield " ".join(chr(c) for c in range(0x600, 0xB00, 3))
    for i in range(280):
        pick = [lambda: random.choice(WORDS), lambda: random.choice(SPACES), any_character,
                lambda: str(random.randrange(10 ** random.randrange(1, 9))), lambda: random.choice(SPECIAL)]
        weights = [(1, 1, 0, 0.3, 0), (1, 2, 1, 0.3, 0.1), (0, 0.2, 1, 0, 0), (1, 1, 0.1, 0.1, 0.3)][i % 4]
        yield "".join(random.choices(pick, weights)[0]() for _ in range(random.randrange(1, 40)))


def main():
    os.makedirs(OUT, exist_ok=True)
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    plain.train_from_iterator(corpus(), trainer)
    plain.model.save(OUT)
    full = Tokenizer(models.BPE.from_file(os.path.join(OUT, "vocab.json"), os.path.join(OUT, "merges.txt")))
    full.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    full.decoder = decoders.ByteLevel()
    full.add_special_tokens(["<|endoftext|>", "<|end|>"])
    full.add_tokens([AddedToken("<|endof", normalized=True), AddedToken("<pad>", normalized=True)])
    full.save(os.path.join(OUT, "tokenizer.json"), pretty=False)
    rows = []
    for text in texts():
        ids = plain.encode(text).ids
        assert plain.decode(ids, skip_special_tokens=False) == text
        rows.append([text.encode("utf-8").hex(), ids, full.encode(text).ids])
    with open(os.path.join(OUT, "cases.json"), "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


main()
