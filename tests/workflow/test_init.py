"""Projects outside a checkout: laid out by a package that pip has installed, or with this workflow as a module."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import processes
import pytest
import yaml
from checkout import ROOT, Checkout

from arc_refinery.cli import init
from arc_refinery.errors import InputError
from arc_refinery.runs.project import PARTS

pytestmark = pytest.mark.snakemake


MODULE = """
configfile: "config/config.yaml"

module arc_refinery:
    snakefile: {snakefile!r}
    config: config

use rule * from arc_refinery
"""


def test_other_workflows_use_it_as_a_module(pristine: Checkout, tmp_path: Path):
    """As snakedeploy writes it; configs and embedded models are the project's own."""
    (tmp_path / "workflow").mkdir()
    for name in ("config", "workflow/models"):
        (tmp_path / name).symlink_to(ROOT / name)
    snakefile = str(pristine.folder / "workflow/Snakefile")
    (tmp_path / "workflow/Snakefile").write_text(MODULE.format(snakefile=snakefile))
    own = Checkout(tmp_path)
    assert own.planned() == pristine.planned()
    quick = ("--configfile", "config/quick.yaml")
    assert own.planned(*quick) == pristine.planned(*quick)  # without the keys of the file above
    done = own.snakemake("--cores", "1", "results/quick/questions/arithmetic.parquet", *quick)
    assert done.returncode == 0, done.stderr
    catalog = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert (ROOT / catalog["mandatory-flags"]["flags"].removeprefix("--configfile ")).exists()


@pytest.fixture(scope="module")
def environment(pristine: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the programs of an environment in which the package is installed, beside all that it needs."""
    folder = tmp_path_factory.mktemp("environment")
    source = pristine.clone(folder / "source").folder  # setuptools builds there
    python = folder / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (places,) = folder.glob("venv/lib/python3.*/site-packages")
    (places / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    command += ["--no-deps", "--no-build-isolation", str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return python.parent


def test_a_project_of_the_installed_package_plans_and_runs_what_a_checkout_does(
    environment: Path, pristine: Checkout, tmp_path: Path
):
    variables = processes.environment({"PATH": f"{environment}:{processes.BIN}:/usr/bin:/bin", "PYTHONPATH": ""})

    def run(*command: str, folder: Path = tmp_path) -> str:
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(str(environment / "arc-refinery"), "init", "project")
    project = tmp_path / "project"
    module = run(str(environment / "python"), "-c", "import arc_refinery; print(arc_refinery.__file__)")
    assert not Path(module).is_relative_to(ROOT)
    for name in ("condor", "condor-transfer"):
        assert (project / name / "job.sh").stat().st_mode & 0o111  # HTCondor runs it
    assert (project / "envs/cpu.txt").exists()  # the doctor compares with it
    snakemake = [str(environment / "python"), "-m", "snakemake", "--configfile", "config/quick.yaml"]
    planned = run(*snakemake, "--dry-run", folder=project)
    of_checkout = pristine.snakemake("--configfile", "config/quick.yaml", "--dry-run").stdout
    assert sorted(planned.splitlines()) == sorted(of_checkout.splitlines())  # jobs come in any order
    run(*snakemake, "--cores", "1", "results/quick/questions/arithmetic.parquet", folder=project)
    assert (project / "results/quick/questions/arithmetic.parquet").exists()


@pytest.mark.parametrize("folder", ["config/mine", "workflow/models"])
def test_a_project_is_not_laid_out_in_what_is_copied(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(init, "project_files", lambda: tmp_path)
    with pytest.raises(InputError, match="outside of"):
        init.Init(folder=str(tmp_path / folder)).run()
    assert not (tmp_path / folder).exists()


def test_an_empty_folder_stays_the_one_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    init.Init(folder=".").run()
    assert Path("Snakefile").is_file()
    links = [(page, to) for page in tmp_path.rglob("*.md") for to in re.findall(r"\]\(([^)#:]+)", page.read_text())]
    assert links and all((page.parent / to).exists() for page, to in links)
    with pytest.raises(InputError, match=r"^folder: .* it has files"):  # it has no flag
        init.Init(folder=".").check_outputs()
    assert Path.cwd() == tmp_path and not [path for path in tmp_path.iterdir() if path.name.startswith("tmp")]


def test_caches_and_files_of_editors_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("Snakefile", *(f"{part}/__pycache__/x.pyc" for part in PARTS[1:]), "examples/.own.py.swp"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).touch()
    monkeypatch.setattr(init, "project_files", lambda: tmp_path / "source")
    init.Init(folder=str(tmp_path / "project")).run()
    files = [path.name for path in (tmp_path / "project").rglob("*") if path.is_file()]
    assert files == ["Snakefile"]
