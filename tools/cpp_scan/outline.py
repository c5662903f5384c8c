"""The outline of a C++ file: tokens -> functions with length and parameters, structs with fields, template lists.

No compiler is asked: a stack of scopes follows the braces, and the tokens since the last `;`, `{` or `}` (the head) say
what a brace opens. Where the head is unclear the outline prefers to see nothing over inventing a function.
"""

from dataclasses import dataclass, field

from cpp_scan.heads import (
    BRACES,
    class_name,
    count_fields,
    is_class_head,
    is_parameter,
    lambda_parameters,
    parse_signature,
    strip_prefix,
)
from cpp_scan.tokens import match_angle, split_commas


@dataclass
class Function:
    name: str
    line: int  # of the opening brace, or of the declaration
    end_line: int
    parameters: int
    is_definition: bool
    is_nested: bool  # a lambda or a local function: its lines count for the function around it as well


@dataclass
class Struct:
    name: str
    line: int
    fields: int


@dataclass
class Outline:
    functions: list = field(default_factory=list)
    structs: list = field(default_factory=list)
    templates: list = field(default_factory=list)  # (line, number of parameters)


@dataclass
class _Scope:
    kind: str  # namespace, class, enum, function, lambda, block, init
    name: str = ""
    line: int = 0
    parameters: int = 0
    fields: int = 0
    open_brackets: int = 0
    head: list = field(default_factory=list)

    def copy(self):
        return _Scope(**{**vars(self), "head": list(self.head)})


_CODE_KINDS = ("function", "lambda", "block", "init")


def build_outline(tokens):
    """The outline of a token list from tokens.tokenize()."""
    outline = Outline()
    code = [t for t in tokens if t.kind != "comment" and not t.in_directive]
    _collect_templates([t for t in code if t.kind != "directive"], outline)
    stack, branches = [_Scope("namespace")], []
    for token in code:
        if token.kind == "directive":
            stack = _follow_branch(token.text, stack, branches)
        elif token.text == "{":
            stack.append(_open_scope(stack, token.line))
        elif token.text == "}":
            if len(stack) > 1:
                _close_scope(stack, token.line, outline)
        else:
            _extend_head(stack, token, outline)
    return outline


def _follow_branch(directive, stack, branches):
    """Each branch of an #if starts with the scopes that were open before it, so braces may differ between them."""
    name = directive.lstrip("# \t").split(None, 1)[0:1]
    if name and name[0] in ("if", "ifdef", "ifndef"):
        branches.append([scope.copy() for scope in stack])
    elif name and name[0] in ("else", "elif", "elifdef", "elifndef") and branches:
        return [scope.copy() for scope in branches[-1]]
    elif name and name[0] == "endif" and branches:
        branches.pop()
    return stack


def _extend_head(stack, token, outline):
    scope = stack[-1]
    if token.text == ";" and scope.open_brackets == 0:
        if scope.kind in ("namespace", "class"):
            _end_declaration(scope, len(stack) > 1, outline)
        scope.head.clear()
        return
    if token.text == ":" and scope.kind == "class" and scope.head:
        if scope.head[-1].text in ("public", "private", "protected"):
            scope.head.clear()
            return
    if token.text in ("(", "["):
        scope.open_brackets += 1
    elif token.text in (")", "]"):
        scope.open_brackets = max(0, scope.open_brackets - 1)
    scope.head.append(token)


def _open_scope(stack, line):
    parent = stack[-1]
    head = parent.head
    parameters = lambda_parameters(head)
    if parameters is not None:
        return _Scope("lambda", "lambda", line, parameters)
    if parent.open_brackets:
        return _Scope("init", line=line)
    plain = strip_prefix(head)
    if parent.kind in _CODE_KINDS or parent.kind == "enum":
        return _open_in_code(plain, line)
    return _open_in_declarations(plain, line)


def _open_in_code(head, line):
    if is_class_head(head):
        return _Scope("class", class_name(head), line)
    if not head or head[-1].text in (")", "else", "do", "try", ":", ";"):
        return _Scope("block", line=line)
    return _Scope("init", line=line)


def _open_in_declarations(head, line):
    texts = [t.text for t in head]
    if "namespace" in texts or (texts[:1] == ["extern"] and len(head) == 2 and head[1].kind == "string"):
        return _Scope("namespace", line=line)
    if "enum" in texts[:2]:
        return _Scope("enum", line=line)
    if is_class_head(head):
        return _Scope("class", class_name(head), line)
    signature = parse_signature(head)
    if signature is None or (signature.in_initialisers and (head[-1].kind == "id" or head[-1].text == ">")):
        return _Scope("init", line=line)
    return _Scope("function", signature.name, line, len(signature.parameters))


def _close_scope(stack, line, outline):
    scope = stack.pop()
    parent = stack[-1]
    if scope.kind in ("function", "lambda"):
        nested = any(s.kind in ("function", "lambda") for s in stack)
        outline.functions.append(Function(scope.name, scope.line, line, scope.parameters, True, nested))
    elif scope.kind == "class":
        outline.structs.append(Struct(scope.name, scope.line, scope.fields))
    if scope.kind in ("class", "enum", "init", "lambda"):
        parent.head.append(BRACES)
    else:
        parent.head.clear()


def _end_declaration(scope, is_inner, outline):
    """A declaration ended with `;`: count it as a field of its class, or check it as the prototype of a function."""
    head = strip_prefix(scope.head)
    if not head or head[0].text in ("using", "typedef", "friend", "static_assert", "template", "extern"):
        return
    signature = parse_signature(head)
    if signature is not None:
        has_type = signature.name_index > 0
        if has_type and all(is_parameter(p) for p in signature.parameters):
            outline.functions.append(
                Function(signature.name, head[0].line, head[-1].line, len(signature.parameters), False, is_inner)
            )
        return
    if scope.kind == "class":
        scope.fields += count_fields(head)


def _collect_templates(tokens, outline):
    for index, token in enumerate(tokens[:-1]):
        if token.text == "template" and tokens[index + 1].text == "<":
            end = match_angle(tokens, index + 1)
            if end is not None:
                outline.templates.append((token.line, len(split_commas(tokens[index + 2 : end]))))
