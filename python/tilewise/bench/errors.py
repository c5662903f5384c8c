"""What goes wrong with a peer, in one line."""


class Refused(Exception):
    """A peer does not serve a case, or cannot be used here at all."""


def first_line(error: BaseException) -> str:
    """The first line of what an error says, with its kind."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"
