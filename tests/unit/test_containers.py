"""The recipes of images: both run one script, on files that are there. Only a bare Debian has run it (docs/run.md)."""

import re
import subprocess

import pytest
from checkout import ROOT

FOLDER = ROOT / "containers"
RECIPES = {name: (FOLDER / name).read_text() for name in ("Dockerfile", "arc-refinery.def")}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_installs_the_set_that_is_asked_for_where_its_path_points(name: str):
    recipe = RECIPES[name]
    (folder,) = set(re.findall(r"(?:WORKDIR |cd )(\S+)", recipe))
    assert f"{folder}/environment/bin:$PATH" in recipe
    assert re.search(r"containers/install\.sh (\"\$SET\"|\{\{ SET \}\})", recipe)
    assert "SET=cpu" in recipe  # the default


def test_both_recipes_begin_with_one_system_and_one_python():
    systems = {re.search(r"(?:FROM|From:) (debian:12-slim)", recipe)[1] for recipe in RECIPES.values()}  # type: ignore[index]
    assert systems == {"debian:12-slim"}  # its Python is 3.11


def test_the_script_makes_environments_that_the_makefile_has():
    script = (FOLDER / "install.sh").read_text()
    targets = {target for line in re.findall(r'environments="(.*?)"', script) for target in line.split()}
    makefile = (ROOT / "Makefile").read_text()
    assert targets == {"env", "gpu-env"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    used = re.findall(r"used=(\S+)", script)
    assert used == [".venv", ".venv-gpu"]
    assert all(f"{folder}/installed:" in makefile.replace("$(VENV)", ".venv") for folder in used[:1])
    assert ".venv-gpu/installed" in makefile


def test_another_set_is_refused_before_anything_is_installed():
    done = subprocess.run([FOLDER / "install.sh", "tpu"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "containers/install.sh: the set is tpu; expected cpu or gpu\n"


def test_an_image_holds_no_results_and_no_environment_of_the_folder_it_is_built_in():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {"results", "logs", ".snakemake", ".venv*"} <= set(ignored)
    assert not {"config", "envs", "rules", "Snakefile", "workflow", "Makefile", "containers"} & set(ignored)
