"""Long error messages as one line: TVM's hold backtraces, and source with markers below it."""

from __future__ import annotations


def one_line(error: BaseException) -> str:
    """The line of an error's message that says what is wrong, after the kind of the error.

    TVMScript's messages say it in a line that starts with ``error:``, all others in the last.

    Parameters
    ----------
    error : BaseException
        Any error.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    marked = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    return ": ".join([type(error).__name__, *(marked or lines)[-1:]])
