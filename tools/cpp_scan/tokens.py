"""Splits C, C++ and CUDA source into tokens: text -> list of Token.

Just enough of a lexer for the checkers: comments, strings (raw ones too) and preprocessor directives become single
tokens, so that no rule mistakes their insides for code. `>` is never joined with its neighbour: whether `>>` shifts or
closes two template lists is for the reader of the tokens to say.
"""

import re
from typing import NamedTuple


class Token(NamedTuple):
    kind: str  # id, number, string, char, punct, comment, directive
    text: str
    line: int
    in_directive: bool = False


_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = r"//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)"

# The order of the alternatives matters: a raw string before an identifier, a comment before the `/` operator.
_SCANNER = re.compile(
    r"(?P<comment>" + _COMMENT + r")"
    r'|(?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")'
    r"|(?P<string>(?:u8|[uUL])?" + _STRING + r")"
    r"|(?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')"
    r"|(?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)"
    r"|(?P<id>[A-Za-z_]\w*)"
    r"|(?P<space>(?:\s|\\\n)+)"
    r"|(?P<punct>\.\.\.|->|::|\+\+|--|<<=|<<|<=|==|!=|&&|\|\||[-+*/%&|^]=|.)",
    re.DOTALL,
)

# A directive reaches to the end of its logical line; a block comment inside may carry it over further lines.
_DIRECTIVE = re.compile(r"\#(?:" + _STRING + r"|" + _COMMENT + r"|\\\n|[^\n])*", re.DOTALL)
_DIRECTIVE_PART = re.compile(r"(?P<string>" + _STRING + r")|(?P<comment>" + _COMMENT + r")", re.DOTALL)


def tokenize(text):
    """All tokens of `text` in order. A directive is followed by the tokens of its body, marked `in_directive`."""
    tokens = []
    position, line, line_is_blank = 0, 1, True
    while position < len(text):
        if text[position] == "#" and line_is_blank:
            match = _DIRECTIVE.match(text, position)
            tokens.extend(_directive_tokens(match.group(), line))
        else:
            match = _SCANNER.match(text, position)
            kind = match.lastgroup if match.lastgroup != "delimiter" else "raw"
            if kind != "space":
                tokens.append(Token("string" if kind == "raw" else kind, match.group(), line))
        lexeme = match.group()
        line += lexeme.count("\n")
        if "\n" in lexeme and lexeme.isspace():
            line_is_blank = True
        elif not lexeme.isspace() and not lexeme.startswith("/*"):
            line_is_blank = False
        position = match.end()
    return tokens


def _directive_tokens(text, line):
    """The directive itself, with its comments blanked out, then its comments and the tokens of its body."""
    comments = []

    def blank(match):
        if match.lastgroup == "string":
            return match.group()
        comments.append(Token("comment", match.group(), line + text.count("\n", 0, match.start())))
        return " " + "\n" * match.group().count("\n")

    code = _DIRECTIVE_PART.sub(blank, text)
    result = [Token("directive", code.strip(), line)]
    result.extend(comments)
    body_line = line
    for match in _SCANNER.finditer(code, 1):
        kind = match.lastgroup if match.lastgroup != "delimiter" else "raw"
        if kind != "space":
            result.append(Token("string" if kind == "raw" else kind, match.group(), body_line, in_directive=True))
        body_line += match.group().count("\n")
    return result


def match_group(tokens, start):
    """Index of the token that closes the bracket at `start`, or None. Counts (), [] and {} alike."""
    depth = 0
    for index in range(start, len(tokens)):
        if tokens[index].text in ("(", "[", "{"):
            depth += 1
        elif tokens[index].text in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return index
    return None


def match_angle(tokens, start):
    """Index of the `>` that closes the `<` at `start`, or None where that `<` is a comparison."""
    depth, index = 0, start
    while index < len(tokens):
        text = tokens[index].text
        if text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return index
        elif text in ("(", "[", "{"):
            index = match_group(tokens, index)
            if index is None:
                return None
        elif text in (")", "]", "}", ";", "&&", "||") and depth:
            return None
        index += 1
    return None


def split_commas(tokens):
    """Splits at the commas that stand outside every bracket and template list; an empty list has no parts."""
    parts, current, index = [], [], 0
    while index < len(tokens):
        token, end = tokens[index], None
        if token.text in ("(", "[", "{"):
            end = match_group(tokens, index)
        elif token.text == "<" and index > 0 and tokens[index - 1].kind == "id":
            end = match_angle(tokens, index)
        if end is not None:
            current.extend(tokens[index : end + 1])
            index = end + 1
            continue
        if token.text == ",":
            parts.append(current)
            current = []
        else:
            current.append(token)
        index += 1
    if current or parts:
        parts.append(current)
    return parts
