"""What a server's /v1/models says, as far as it can be asked for. Python 3.8: this runs on the GPU host too."""

from typing import Any, Dict, List, Tuple

LONGEST_ID = 4096
"""Bytes of the name of a model: longer ones are no names, and would go with every request."""


def askable(listed: Any) -> Tuple[List[Dict[str, Any]], str]:
    """The entries of `data` whose id can be sent with a request, unchanged, and what is wrong with the others (empty: nothing).

    An id is sent as the server writes it, whatever is in it: a cleaned one would be the name of no model.
    """
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    named = [entry for entry in entries if isinstance(entry.get("id"), str) and entry["id"]]
    fit = [entry for entry in named if len(entry["id"].encode("utf-8", "surrogatepass")) <= LONGEST_ID]
    left = len(named) - len(fit)
    if not left:
        return fit, ""
    which = "a model whose name is" if left == 1 else "%d models whose names are" % left
    return fit, "/v1/models lists %s longer than %d KiB, too long to be asked for" % (which, LONGEST_ID >> 10)
