"""Reads the head of a declaration: the tokens between the last `;`, `{` or `}` and the brace or `;` that follows.

Says whether a head declares a function (name and parameters), a class, a lambda, or how many fields of a class.
"""

from dataclasses import dataclass

from cpp_scan.tokens import Token, match_angle, match_group, split_commas

CLASS_KEYS = ("class", "struct", "union")
BUILTIN_TYPES = frozenset("void bool char short int long float double signed unsigned auto wchar_t char8_t".split())
# Identifiers that may stand before `(` without being the name of the function.
_NOT_NAMES = BUILTIN_TYPES | frozenset(
    "decltype alignas alignof noexcept requires explicit throw sizeof typeof static_assert asm __attribute__ "
    "__declspec __launch_bounds__ __cluster_dims__ __align__ __pragma _Pragma const volatile return".split()
)
_AFTER_PARAMETERS = frozenset("const volatile noexcept override final mutable requires try & && -> : = throw".split())
_BEFORE_LAMBDA = frozenset("return co_return co_yield case throw else".split())
_LAMBDA_SPECIFIERS = frozenset("mutable noexcept constexpr consteval static requires -> [ __attribute__".split())
BRACES = Token("punct", "{}", 0)  # stands in a head for a braced part that is closed


@dataclass
class Signature:
    name: str
    name_index: int
    parameters: list
    in_initialisers: bool  # the head goes on past the `:` of a constructor's initialisers


def parse_signature(head):
    """Finds name and parameter list of a function in a head without attributes and template<>; None if it has none."""
    index = 0
    while index < len(head):
        token = head[index]
        if token.text == "operator":
            return _operator_signature(head, index)
        if token.text == "=" or token is BRACES:
            return None
        end = None
        if token.text == "<" and index and head[index - 1].kind == "id":
            end = match_angle(head, index)
            if end is not None and end + 1 < len(head) and head[end + 1].text == "(":
                signature = _signature_at(head, index - 1, end + 1)
                if signature is not None:
                    return signature
        elif token.text == "(":
            if index and head[index - 1].kind == "id":
                signature = _signature_at(head, index - 1, index)
                if signature is not None:
                    return signature
            end = match_group(head, index)
        elif token.text == "[":
            end = match_group(head, index)
        index = (end if end is not None else index) + 1
    return None


def _operator_signature(head, index):
    start = index + 1
    if [t.text for t in head[start : start + 2]] == ["(", ")"]:
        start += 2
    while start < len(head) and head[start].text != "(":
        start += 1
    end = match_group(head, start) if start < len(head) else None
    if end is None:
        return None
    return Signature("operator", index, _parameters(head[start + 1 : end]), False)


def _signature_at(head, name_index, open_index):
    name = head[name_index].text
    end = match_group(head, open_index)
    if name in _NOT_NAMES or end is None:
        return None
    rest = head[end + 1 :]
    inner = head[open_index + 1 : end]
    if rest and rest[0].text == "(" and inner and inner[0].text in ("*", "&"):
        return None  # a pointer to a function
    if rest and rest[0].kind == "id" and rest[0].text not in _AFTER_PARAMETERS and any(t.text == "(" for t in rest):
        return None  # a macro with arguments in front of the real declaration
    return Signature(name, name_index, _parameters(inner), any(t.text == ":" for t in rest))


def _parameters(tokens):
    if [t.text for t in tokens] == ["void"]:
        return []
    return split_commas(tokens)


def strip_prefix(head):
    """The head without [[attributes]], alignas(...), __attribute__((...)) and the leading template<...> lists."""
    result, index = [], 0
    while index < len(head):
        text = head[index].text
        following = head[index + 1].text if index + 1 < len(head) else ""
        end = None
        if text == "[" and following == "[":
            end = match_group(head, index)
        elif text in ("alignas", "__attribute__", "__declspec", "__launch_bounds__") and following == "(":
            end = match_group(head, index + 1)
        elif text == "template" and following == "<" and not result:
            end = match_angle(head, index + 1)
        elif text == "decltype" and following == "(":
            end = match_group(head, index + 1)
            if end is not None:
                result.append(Token("id", "decltype", head[index].line))
        if end is None:
            result.append(head[index])
        else:
            index = end
        index += 1
    return result


def is_class_head(head):
    """Whether a brace after this head opens a class, and not a function or a variable of `struct X` type."""
    texts = [t.text for t in head]
    key = next((i for i, text in enumerate(texts) if text in CLASS_KEYS), None)
    if key is None or "=" in texts or any(text in ("(", "<") for text in texts[:key]) or "enum" in texts[:key]:
        return False
    head_end = texts.index(":") if ":" in texts else len(texts)
    after = head[key + 1 : head_end]
    for index, token in enumerate(after):
        if token.text == "(" and index > 1 and after[index - 1].kind == "id":
            return False
    # `struct Name variable {`: a second identifier in lower case is a variable; a first one in capitals is a macro.
    names = [t.text for t in after if t.kind == "id" and t.text != "final"]
    return not (len(names) == 2 and len(after) == 2 and names[1][:1].islower() and not names[0].isupper())


def class_name(head):
    texts = [t.text for t in head]
    end = texts.index(":") if ":" in texts else len(texts)
    key = next(i for i, text in enumerate(texts) if text in CLASS_KEYS)
    names = [t.text for t in head[key + 1 : end] if t.kind == "id" and t.text != "final"]
    angle = texts.index("<") if "<" in texts[key:end] else None
    if angle is not None and angle > 0:
        return texts[angle - 1]
    return names[-1] if names else "(unnamed)"


def lambda_parameters(head):
    """Number of parameters of the lambda whose body the next brace opens; None if that brace opens no lambda."""
    for index in range(len(head) - 1, -1, -1):
        if head[index].text != "[" or not _can_start_lambda(head, index):
            continue
        end = match_group(head, index)
        if end is None:
            continue
        rest = head[end + 1 :]
        if rest and rest[0].text == "<":
            close = match_angle(rest, 0)
            rest = rest[close + 1 :] if close is not None else rest
        parameters = []
        if rest and rest[0].text == "(":
            close = match_group(rest, 0)
            if close is None:
                continue
            parameters = _parameters(rest[1:close])
            rest = rest[close + 1 :]
        if not rest or (rest[0].text in _LAMBDA_SPECIFIERS and BRACES not in rest):
            return len(parameters)
    return None


def _can_start_lambda(head, index):
    if index + 1 < len(head) and head[index + 1].text == "[":
        return False
    if index == 0:
        return True
    before = head[index - 1]
    if before.kind in ("id", "string", "number"):
        return before.text in _BEFORE_LAMBDA
    return before.text not in (")", "]", "[", ">", "{}")


def count_fields(head):
    texts = [t.text for t in head]
    before_value = texts[: texts.index("=")] if "=" in texts else texts
    if "static" in before_value or "using" in before_value or texts[0] in ("using", "friend", "template"):
        return 0
    if head[0].text in CLASS_KEYS or head[0].text == "enum":
        if "{}" in texts:  # a nested type: a field if it declares one, or if it is an anonymous union or struct
            is_anonymous_member = texts[:2] in (["union", "{}"], ["struct", "{}"])
            if texts[-1] == "{}":
                return 1 if is_anonymous_member else 0
        elif len(head) == 2:
            return 0  # a forward declaration
    if len(head) < 2 or not any(t.kind == "id" for t in head) or _is_macro_call(head):
        return 0
    return len(split_commas(head))


def _is_macro_call(head):
    return head[0].kind == "id" and head[1].text == "(" and match_group(head, 1) == len(head) - 1


def is_parameter(tokens):
    """Whether `tokens` declare a parameter; the arguments of a variable's constructor usually do not look like it."""
    texts = [t.text for t in tokens]
    if any(text in BUILTIN_TYPES for text in texts) or texts == ["..."]:
        return True
    for left, right in zip(tokens, tokens[1:]):
        if right.kind == "id" and (left.kind == "id" or left.text in ("*", "&", "&&", ">")):
            return True
    return bool(texts) and texts[-1] in ("*", "&", "&&", ">")
