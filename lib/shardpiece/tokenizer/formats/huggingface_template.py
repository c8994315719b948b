"""Templates in the terms of Hugging Face's ``tokenizer.json``: its post_processor."""

from shardpiece.tokenizer.tokenizer import Tokenizer


def post_processor(tokenizer: Tokenizer) -> dict | None:
    template = tokenizer.template
    if not template:
        return None
    names = {i: tokenizer.spelled_token(i) for i in (*template.before, *template.after)}

    def around(sequence: str, number: int) -> list[dict]:
        before, after = (
            [{"SpecialToken": {"id": names[i], "type_id": number}} for i in ids]
            for ids in (template.before, template.after)
        )
        return [*before, {"Sequence": {"id": sequence, "type_id": number}}, *after]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for i, name in sorted(names.items())},
    }
