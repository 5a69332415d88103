"""Text that can always be written as UTF-8."""


def well_formed(text: str) -> str:
    """The text with lone surrogates as U+FFFD and surrogate pairs joined; the same object without any.

    JSON can carry such halves as escapes, and no answer could repeat them.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
