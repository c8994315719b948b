"""The byte-level alphabet of GPT-2 under the name it has among formats; see ``text.byte_alphabet``."""

from shardpiece.text.byte_alphabet import byte_alphabet, byte_level_order, spell, text_bytes, unspell

__all__ = ["byte_alphabet", "byte_level_order", "spell", "text_bytes", "unspell"]
