"""The settings in SentencePiece's model files: TrainerSpec and NormalizerSpec of sentencepiece_model.proto (0.2.3)."""

import struct
from typing import ClassVar

from shardpiece.errors import FormatError
from shardpiece.tokenizer.formats import protobuf as p

MODEL_TYPES = ("unigram", "bpe", "word", "char")

# Field number → (name, kind, the value where the file has none). TrainerSpec and NormalizerSpec of 0.2.3.
_TRAINER = {
    1: ("input", "texts", ()),
    2: ("model_prefix", "text", ""),
    3: ("model_type", "model", "unigram"),
    4: ("vocab_size", "int", 8000),
    5: ("accept_language", "texts", ()),
    6: ("self_test_sample_size", "int", 0),
    7: ("input_format", "text", ""),
    10: ("character_coverage", "float", 0.9995),
    11: ("input_sentence_size", "int", 0),
    12: ("mining_sentence_size", "int", 0),
    13: ("training_sentence_size", "int", 0),
    14: ("seed_sentencepiece_size", "int", 1_000_000),
    15: ("shrinking_factor", "float", 0.75),
    16: ("num_threads", "int", 16),
    17: ("num_sub_iterations", "int", 2),
    18: ("max_sentence_length", "int", 4192),
    19: ("shuffle_input_sentence", "bool", True),
    20: ("max_sentencepiece_length", "int", 16),
    21: ("split_by_unicode_script", "bool", True),
    22: ("split_by_whitespace", "bool", True),
    23: ("split_by_number", "bool", True),
    24: ("treat_whitespace_as_suffix", "bool", False),
    25: ("split_digits", "bool", False),
    26: ("allow_whitespace_only_pieces", "bool", False),
    30: ("control_symbols", "texts", ()),
    31: ("user_defined_symbols", "texts", ()),
    32: ("vocabulary_output_piece_score", "bool", True),
    33: ("hard_vocab_limit", "bool", True),
    34: ("use_all_vocab", "bool", False),
    35: ("byte_fallback", "bool", False),
    36: ("required_chars", "text", ""),
    40: ("unk_id", "int", 0),
    41: ("bos_id", "int", 1),
    42: ("eos_id", "int", 2),
    43: ("pad_id", "int", -1),
    44: ("unk_surface", "text", " ⁇ "),
    45: ("unk_piece", "text", "<unk>"),
    46: ("bos_piece", "text", "<s>"),
    47: ("eos_piece", "text", "</s>"),
    48: ("pad_piece", "text", "<pad>"),
    49: ("train_extremely_large_corpus", "bool", False),
    50: ("enable_differential_privacy", "bool", False),
    51: ("differential_privacy_noise_level", "float", 0.0),
    52: ("differential_privacy_clipping_threshold", "int", 0),
    53: ("pretokenization_delimiter", "text", ""),
    54: ("seed_sentencepieces_file", "text", ""),
    55: ("auto_character_coverage", "bool", False),
}
_NORMALIZER = {
    1: ("name", "text", ""),
    2: ("precompiled_charsmap", "bytes", b""),
    3: ("add_dummy_prefix", "bool", True),
    4: ("remove_extra_whitespaces", "bool", True),
    5: ("escape_whitespaces", "bool", True),
    6: ("normalization_rule_tsv", "text", ""),
}
_KINDS = {"text": p.BYTES, "texts": p.BYTES, "bytes": p.BYTES, "float": p.FIXED32}


class Spec(dict):
    """Settings by name: those that a file sets; a name that it does not set reads as SentencePiece's default. Fields
    that this module does not know are kept as they are, under "unknown"."""

    schema: ClassVar[dict[int, tuple[str, str, object]]]
    what: ClassVar[str]

    @classmethod
    def names(cls) -> set[str]:
        return {name for name, _, _ in cls.schema.values()}

    def __missing__(self, name: str):
        for known, _, default in self.schema.values():
            if known == name:
                return default
        if name == "unknown":
            return b""
        raise KeyError(name)


class TrainerSpec(Spec):
    schema = _TRAINER
    what = "trainer_spec"


class NormalizerSpec(Spec):
    schema = _NORMALIZER
    what = "normalizer_spec"


def read_spec(spec: Spec, message: bytes) -> Spec:
    """Read a message into an empty ``spec``. Raises FormatError when it is damaged."""
    unknown = b""
    for number, wire, value, whole in p.fields(message):
        if number not in spec.schema:
            unknown += whole
            continue
        name, kind, _ = spec.schema[number]
        if wire != _KINDS.get(kind, p.VARINT):
            raise FormatError(f"{spec.what}: {name} is of kind {wire}")
        if kind == "texts":
            spec[name] = (*spec[name], value.decode(errors="surrogateescape"))
        else:
            spec[name] = _read_value(value, kind, f"{spec.what}: {name}")
    if unknown:
        spec["unknown"] = unknown
    return spec


def _read_value(value: int | bytes, kind: str, what: str) -> object:
    match kind:
        case "text":
            return value.decode(errors="surrogateescape")
        case "bytes":
            return value
        case "float":
            return struct.unpack("<f", value)[0]
        case "bool":
            return value != 0
        case "model":
            if not 1 <= value <= len(MODEL_TYPES):
                raise FormatError(f"{what} {value} is none of {', '.join(MODEL_TYPES)}")
            return MODEL_TYPES[value - 1]
    return value - (1 << 64) if value >> 63 else value


def write_spec(spec: Spec) -> bytes:
    """The message, fields in the order of their numbers."""
    out = []
    for number, (name, kind, _) in spec.schema.items():
        if name not in spec:
            continue
        value = spec[name]
        match kind:
            case "texts":
                out += (p.delimited(number, text.encode(errors="surrogateescape")) for text in value)
            case "text":
                out.append(p.delimited(number, value.encode(errors="surrogateescape")))
            case "bytes":
                out.append(p.delimited(number, value))
            case "float":
                out.append(p.fixed32(number, struct.pack("<f", value)))
            case "model":
                out.append(p.varint(number, MODEL_TYPES.index(value) + 1))
            case _:
                out.append(p.varint(number, int(value)))
    return b"".join([*out, spec["unknown"]])
