"""Answers held against what they must be: each is printed, and a run with one that differs ends with 1."""

import sys

_made = 0
_differ = 0


def check(what, got, want):
    """Prints the answer, and notes it if it is another than it must be. Gives whether it is the one."""
    global _made, _differ
    _made += 1
    if got == want:
        print(f"  {what}: {_short(got)}")
        return True
    _differ += 1
    print(f"  {what}: {got!r}\n    but must be {want!r}")
    return False


def raised(what, kind, text, run):
    """Runs what must raise exactly this, and gives the exception."""
    try:
        run()
    except BaseException as error:
        check(what, (type(error), str(error)), (kind, text))
        return error
    check(what, "nothing raised", (kind, text))
    return None


def finish(name):
    """Says how it went, and ends the program."""
    if _differ or not _made:
        print(f"{name}: {_differ} of {_made} answers differ")
        sys.exit(1)
    print(f"{name}: {_made} answers, all as they must be")
    sys.exit(0)


def _short(answer):
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], type):
        return f"{answer[0].__name__}: {answer[1]}"
    text = str(answer)
    return text if "\n" not in text else "\n      " + text.replace("\n", "\n      ")
