"""Templates in the terms of Hugging Face's ``tokenizer.json``: its post_processor."""

from shardpiece.errors import FormatError
from shardpiece.tokenizer.template import Template
from shardpiece.tokenizer.tokenizer import Tokenizer


def post_processor(tokenizer: Tokenizer) -> dict | None:
    template = tokenizer.template
    if not template:
        return None
    added = {token.id: token.text for token in tokenizer.added_tokens}
    names = {i: added.get(i) or tokenizer.spelled_token(i) for i in (*template.before, *template.after)}

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


def read(config: dict | None) -> Template:
    """What a post_processor puts around one text. Raises FormatError for what is no template of one text."""
    if config is None:
        return Template()
    match config["type"]:
        case "ByteLevel":
            return Template()  # it only moves offsets
        case "BertProcessing" | "RobertaProcessing":
            return Template((config["cls"][1],), (config["sep"][1],))
        case "Sequence":
            whole = Template()
            for part in config["processors"]:
                around = read(part)
                whole = Template(around.before + whole.before, whole.after + around.after)
            return whole
        case "TemplateProcessing":
            return _template(config)
    raise FormatError(f"post_processor: the type {config['type']!r:.60} is not known here")


def _template(config: dict) -> Template:
    ids: list[list[int]] = [[]]
    for part in config["single"]:
        if "SpecialToken" in part:
            ids[-1] += config["special_tokens"][part["SpecialToken"]["id"]]["ids"]
        elif part["Sequence"]["id"] == "A":
            ids.append([])
        else:
            raise FormatError("post_processor: the template of one text names a second one")
    if len(ids) != 2:
        raise FormatError(f"post_processor: the template has the text {len(ids) - 1} times")
    return Template(tuple(ids[0]), tuple(ids[1]))
