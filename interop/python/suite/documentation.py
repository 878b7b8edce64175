"""The Python of README.md and docs/emulator.md, run as it is written there. Only the
endpoint is replaced, and KEY is given where the text does not define it."""

import contextlib
import io
import re

from .harness import Skip, check, equal
from .servers import ROOT

DOCUMENTED_ENDPOINT = "https://localhost:8081/"


def run_block(page, world):
    """Runs the only block of Python on a page, and returns its variables and its output."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    equal(len(blocks), 1)
    variables = {"KEY": world.key}
    # The block uses a database of this name if there is one, and the check removes it.
    if any(database["id"] == "shop" for database in world.client.list_databases()):
        raise Skip("the server has a database `shop` of its own")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(blocks[0].replace(DOCUMENTED_ENDPOINT, world.endpoint), variables)
    variables["client"].delete_database("shop")
    return output.getvalue()


@check
def the_python_of_readme_prints_the_order(world):
    output = run_block("README.md", world)
    equal("'customer': 'ada'" in output and "'total': 12.5" in output, True)


@check
def the_python_of_the_page_about_emulators_runs(world):
    run_block("docs/emulator.md", world)
