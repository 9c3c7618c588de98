"""Every module of the product is used by the product: not only by a test or by the simulator.

Starting at what is run or imported by its name, all modules must be reachable by imports.
"""

import importlib.util
import tomllib
from pathlib import Path

from sparkraft.cli import explain, main
from sparkraft.protocol.api_keys import API_INFO
from sparkraft.server.api import registry

ROOT = Path(__file__).resolve().parents[2]

LABORATORY = (
    "sparkraft.simulation",
    "sparkraft.testing",
    "sparkraft.cli.simulate",
    "sparkraft.console.recorded_run",
    "sparkraft.console.simulator",
)
"""Modules for tests; a module that only they import is not part of the product.

The two of the console show simulated runs (`simulate --show`)."""

RUN_BY_NAME = {
    "pyspark_sparkraft",  # the data source's plug-in, which Spark finds by its name
    "sparkraft.pipeline.demo.run",  # `./quickstart` runs it with `python -m`
}


def graph() -> dict[str, set[str]]:
    """Module → modules of src that it imports, as tools/circles.py sees them."""
    specification = importlib.util.spec_from_file_location("circles", ROOT / "tools/circles.py")
    assert specification is not None
    assert specification.loader is not None
    circles = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(circles)
    return circles.graph_of(ROOT / "src")


def entry_points() -> set[str]:
    """Modules that pyproject.toml, a command line or an API key names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    scripts = {target.partition(":")[0] for target in project["scripts"].values()}
    commands = set(main._MODULES.values())
    commands |= {f"sparkraft.cli.{module}" for module in explain._MODULES.values()}
    handlers = {
        *registry.SERVED.values(),
        *registry.SERVED_ON_CONTROLLER.values(),
        *registry.SERVED_IN_ZOOKEEPER_MODE.values(),
    }
    return (
        RUN_BY_NAME
        | scripts
        | commands
        | {f"sparkraft.server.api.{module}" for module in handlers}
        | {f"sparkraft.protocol.messages.{info.module}" for info in API_INFO.values()}
    )


def reachable(imports: dict[str, set[str]], starts: set[str]) -> set[str]:
    """All modules reached from `starts` outside the laboratory, with the packages they are in."""
    found: set[str] = set()
    left = {name for name in starts if not name.startswith(LABORATORY)}
    while left:
        name = left.pop()
        found.add(name)
        package = name.rpartition(".")[0]
        others = imports[name] | ({package} & imports.keys())
        left |= {other for other in others - found if not other.startswith(LABORATORY)}
    return found


def test_the_product_uses_all_its_modules():
    imports = graph()
    product = {name for name in imports if not name.startswith(LABORATORY)}
    assert product - reachable(imports, entry_points()) == set()


def test_all_entry_points_exist():
    assert entry_points() - graph().keys() == set()


def test_a_module_that_only_the_simulator_imports_is_found():
    imports = {"a": {"b"}, "b": set(), "sparkraft.simulation.x": {"c"}, "c": set()}
    assert reachable(imports, {"a", "sparkraft.simulation.x"}) == {"a", "b"}
