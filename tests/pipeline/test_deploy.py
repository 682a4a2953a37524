"""Everything in ``deploy/`` is valid: programs parse their own commands, and schemas check the files."""

import configparser
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import jsonschema
import pytest
import typer
import yaml

from gdm_dask.cli import (  # noqa: F401 (they register their commands)
    cluster_commands,
    model_commands,
    pipeline_commands,
    store_commands,
    trial_commands,
    warm_commands,
)
from gdm_dask.cli.app import app
from gdm_dask.pipeline import load_pipeline

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGES = sorted(DEPLOY.rglob("*.md"))
#: Third-party programs that pages may name; their files must exist.
OTHERS = {
    "docker",
    "kubectl",
    "systemctl",
    "journalctl",
    "sbatch",
    "crontab",
    "python3",
    "pip",
    "cp",
    "mkdir",
    "useradd",
    "chown",
}


def site(package, *parts):
    """Return a data file of an installed package, without importing the package."""
    found = find_spec(package)
    assert found is not None
    return Path(found.submodule_search_locations[0]).joinpath(*parts)


def shell_lines(page):
    """List the commands in the ``sh`` blocks of a page, and the cron lines in its text."""
    text = page.read_text()
    for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                yield line.strip().removeprefix("$ ")
    for line in re.findall(r"`((?:[\d*]+ ){5}[^`]+)`", text):
        yield line.split(maxsplit=5)[5]


def words_of(line):
    """Split a command into words, without leading variables and trailing redirections."""
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    return [word for k, word in enumerate(words) if not re.match(r"\d?>", word) and not re.match(r"\d?>", words[k - 1])]


def parse_gdm(words):
    """Parse a ``gdm`` command line as the program would; wrong options raise."""
    group = typer.main.get_command(app)
    context = group.make_context("gdm", list(words))
    rest = [*context._protected_args, *context.args] if hasattr(context, "_protected_args") else context.args
    if not rest:
        return
    name, command, arguments = group.resolve_command(context, rest)
    parsed = command.make_context(name, arguments, parent=context)
    if name in ("run", "history"):
        file = ROOT / "pipelines" / Path(parsed.params["file"]).name
        if "$" not in str(file):
            load_pipeline(file, parsed.params["overrides"] or ())


def parse_dask(words):
    module = {"scheduler": "distributed.cli.dask_scheduler", "worker": "distributed.cli.dask_worker"}[words[0]]
    importlib.import_module(module).main.make_context(words[0], list(words[1:]))


def check_command(words):
    program = Path(words[0]).name
    if program in ("gdm", "dask"):
        try:
            parse_gdm(words[1:]) if program == "gdm" else parse_dask(words[1:])
        except (click.exceptions.Exit, typer.Exit):
            pass  # --help
        except Exception as error:
            raise AssertionError(f"{shlex.join(words)}: {error}") from error
        return
    if program == "srun":
        check_command(words[1:])
        return
    if program == "python":
        assert (ROOT / words[1]).exists()
        return
    assert program in OTHERS, f"{program} is not known: {shlex.join(words)}"
    for word in words[1:]:
        place = word.partition("--from-file=")[2] or word
        if re.match(r"(deploy|pipelines)/", place):
            assert (ROOT / place).exists(), f"{place} is not there: {shlex.join(words)}"
    check_inner_command(words)


def check_inner_command(words):
    """Return the command of a container: the words after the image, the compose service, or ``--``."""
    if words[:2] == ["docker", "run"]:
        parse_gdm(words[words.index("gdm") + 1 :])
    elif words[-1] != "job" and words[0] == "docker" and "run" in words and "--entrypoint" not in words:
        parse_gdm(words[words.index("job") + 1 :])
    elif words[:2] == ["kubectl", "exec"]:
        check_command(words[words.index("--") + 1 :])


COMMANDS = [(page.relative_to(ROOT), line) for page in PAGES for line in shell_lines(page)]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line}"[:80] for page, line in COMMANDS])
def test_commands_on_pages_are_right(page, line):
    if line.startswith("export "):
        return
    words = words_of(line)
    if words:
        check_command(words)


def test_tls_variables_are_dasks():
    names = re.findall(r"export (DASK_\w+)=(\S+)", (DEPLOY / "README.md").read_text())
    compose = yaml.safe_load((DEPLOY / "container/compose.tls.yaml").read_text())
    assert dict(names) == compose["x-tls"]["environment"]
    environment = {**os.environ, **dict(names)}
    code = (
        "from distributed.security import Security; s = Security(); "
        "print(s.require_encryption, s.tls_ca_file, *[getattr(s, f'tls_{r}_{k}') "
        "for r in ('scheduler', 'worker', 'client') for k in ('cert', 'key')])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "/certs/ca.pem", *["/certs/cert.pem", "/certs/key.pem"] * 3]


def test_exit_codes_on_the_page_are_those_of_the_program():
    from gdm_dask.errors import BadInput, EngineError, GdmError, Locked

    page = (DEPLOY / "README.md").read_text()
    for error, code in ((GdmError, 1), (BadInput, 2), (EngineError, 3), (Locked, 4)):
        assert error.exit_code == code
        assert f"\n| {code} |" in page


def test_compose_files_fit_the_specification():
    schema = json.loads(site("check_jsonschema", "builtin_schemas", "vendor", "compose-spec.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    for name in ("compose.yaml", "compose.tls.yaml"):
        document = yaml.safe_load((DEPLOY / "container" / name).read_text())
        validator.validate(document)
        for service in document["services"].values():
            if "entrypoint" in service:
                check_command(service["entrypoint"])
    job = yaml.safe_load((DEPLOY / "container/compose.yaml").read_text())["services"]["job"]
    parse_gdm([word.replace("${PIPELINE:-synthetic}", "synthetic") for word in job["command"]])


def container_lines(keyword):
    text = (DEPLOY / "container/Containerfile").read_text().replace("\\\n", " ")
    return [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith(f"{keyword} ")]


def test_the_image_is_made_of_what_is_there():
    text = (DEPLOY / "container/Containerfile").read_text()
    text = text.replace("\\\n", " ")
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "ENTRYPOINT", "CMD"}
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert {line.split()[0] for line in lines} <= known
    allowed = {
        line[1:] for line in (DEPLOY / "container/Containerfile.dockerignore").read_text().split() if line[0] == "!"
    }
    copied = {word for line in container_lines("COPY") if "--from" not in line for word in line.split()[:-1]}
    assert copied == allowed
    assert all(list(ROOT.glob(name)) for name in copied)
    assert json.loads(container_lines("ENTRYPOINT")[0]) == ["gdm"]
    parse = json.loads(container_lines("CMD")[0])
    check_command(["gdm", *parse])
    assert re.search(r"--uid 1000 gdm .*^USER 1000$", text, re.M | re.S)  # nothing runs as root
    for line in container_lines("RUN"):
        subprocess.run(["bash", "-n", "-c", line], check=True)
        for command in line.split("&&"):
            if words_of(command)[0] == "gdm":
                check_command(words_of(command))


def test_compiled_kernels_have_a_place():
    """The image contains them; a service without a home keeps them in its cache folder."""
    image = (DEPLOY / "container/Containerfile").read_text()
    folder = re.search(r"NUMBA_CACHE_DIR=(\S+)", image).group(1)
    assert re.search(rf"chown gdm .*{folder}", image)
    assert image.index("NUMBA_CACHE_DIR") < image.index("USER 1000") < image.index("RUN gdm")
    service = (DEPLOY / "systemd/gdm-run@.service").read_text()
    kept = re.search(r"^CacheDirectory=(\S+)$", service, re.M).group(1)
    assert f"Environment=NUMBA_CACHE_DIR=/var/cache/{kept}\n" in service


def kubernetes_documents():
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            yield pytest.param(document, id=f"{file.name}-{document['kind']}-{document['metadata']['name']}")


@pytest.mark.filterwarnings("ignore")  # of the validator
@pytest.mark.parametrize("document", list(kubernetes_documents()))
def test_kubernetes_files_fit_their_schemas(document):
    if document["kind"] == "DaskCluster":
        crds = site("dask_kubernetes", "operator", "deployment", "helm", "dask-kubernetes-operator", "crds")
        crd = yaml.safe_load((crds / "daskcluster.yaml").read_text())
        version = next(item for item in crd["spec"]["versions"] if item["name"] == "v1")
        assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
        jsonschema.validate(document["spec"], closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))
        for part in ("worker", "scheduler"):
            (container,) = document["spec"][part]["spec"]["containers"]
            check_command(container["command"])
        return
    import kubernetes_validate

    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    if document["kind"] == "CronJob":
        (container,) = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        parse_gdm(container["args"])
        scheduler = {item["name"]: item["value"] for item in container["env"]}["GDM_SCHEDULER"]
        assert scheduler == "tcp://gdm-scheduler:8786"  # the operator names the service after the cluster


def closed(schema):
    """Make a schema refuse unknown keys, as a strict server does."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict) and "type" in found and "additionalProperties" not in found:
        found["additionalProperties"] = False
    if found.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    return found


def test_volumes_are_claimed():
    documents = [document.values[0] for document in kubernetes_documents()]
    claims = {document["metadata"]["name"] for document in documents if document["kind"] == "PersistentVolumeClaim"}
    used = set(
        re.findall(r"claimName: ([\w-]+)", "".join(p.read_text() for p in (DEPLOY / "kubernetes").glob("*.yaml")))
    )
    assert used == claims


def test_systemd_units_are_right(tmp_path):
    service = (DEPLOY / "systemd/gdm-run@.service").read_text()
    timer = (DEPLOY / "systemd/gdm-run@.timer").read_text()
    for text in (service, timer):
        configparser.ConfigParser(strict=False, interpolation=None).read_string(text)
    start = re.search(r"^ExecStart=(.*)$", service, re.M).group(1)
    check_command(shlex.split(start.replace("%i", "webspam")))
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    gdm = tmp_path / "gdm"
    gdm.write_text("#!/bin/sh\n")
    gdm.chmod(0o755)
    service = service.replace("/opt/gdm/bin/gdm", str(gdm)).replace("User=gdm", "User=root")
    (tmp_path / "gdm-run@.service").write_text(service)
    (tmp_path / "gdm-run@.timer").write_text(timer)
    units = [str(tmp_path / f"gdm-run@x.{kind}") for kind in ("service", "timer")]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True, text=True, check=False, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if "gdm-run" in line]
    assert not ours, ours
    calendar = re.search(r"^OnCalendar=(.*)$", timer, re.M).group(1)
    subprocess.run(["systemd-analyze", "calendar", calendar], check=True, capture_output=True)


def test_the_crontab_is_right():
    lines = [line for line in (DEPLOY / "cron/crontab").read_text().splitlines() if not line.startswith("#")]
    for line in lines:
        if re.fullmatch(r"[A-Z_]+=\S+", line):
            continue
        *times, user, command = line.split(maxsplit=6)
        assert all(re.fullmatch(r"\*|\d+(-\d+)?(/\d+)?(,\d+)*", field) for field in times), line
        page = (DEPLOY / "cron/README.md").read_text()
        assert f"useradd --system --user-group {user}\n" in page  # not root
        check_command(words_of(command))


def test_the_batch_script_is_right(tmp_path):
    script = DEPLOY / "slurm/gdm.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", text, re.M))
    assert set(options) == {
        "job-name", "nodes", "ntasks-per-node", "cpus-per-task", "mem", "time", "signal", "output",
    }  # fmt: skip
    cores = options["cpus-per-task"]
    assert f"export SRUN_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-{cores}}}" in text  # srun's only source for it
    assert f"--nthreads {cores} " in text
    for line in re.findall(r"^(?:srun )?(?:dask|gdm) .*$", text, re.M):
        line = (
            line.removesuffix("&")
            .replace('"$PIPELINE"', "pipelines/webspam.toml")
            .replace('"$GDM_SCHEDULER"', "s.json")
        )
        check_command(shlex.split(line))


@pytest.mark.slow
@pytest.mark.cluster
def test_the_batch_script_runs_a_pipeline_with_a_cluster(tmp_path):
    """Run the script as Slurm would, with an `srun` that just runs its arguments."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (binaries / "gdm").write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from gdm_dask.cli.main import run; run()" "$@"\n'
    )
    (binaries / "dask").write_text(f'#!/bin/sh\nexec {sys.executable} -m dask "$@"\n')
    for program in binaries.iterdir():
        program.chmod(0o755)
    text = (ROOT / "pipelines/synthetic.toml").read_text().replace("scale = 1.0", "scale = 0.03")
    text = text.replace("n_features_to_select = 100", "n_features_to_select = 3")
    (tmp_path / "synthetic.toml").write_text(f"{text}\n[evaluate]\ndistributed = true\n")
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "GDM_RUNS": str(tmp_path / "runs")}
    done = subprocess.run(
        ["bash", DEPLOY / "slurm/gdm.sbatch", "synthetic.toml"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 supports" in done.stdout
    assert "scheduler.json" in done.stderr or "cluster" in done.stderr
    assert not list(tmp_path.glob(".gdm-*"))


def slurm_cluster():
    """Import the script as a module."""
    spec = importlib.util.spec_from_file_location("slurm_cluster", DEPLOY / "slurm/cluster.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")  # of dask-jobqueue
def test_slurm_jobs_of_workers_ask_for_what_the_page_says():
    from dask_jobqueue.slurm import SLURMJob

    script = SLURMJob("tcp://127.0.0.1:1", "one", **slurm_cluster().WORKER).job_script()
    for part in ("#SBATCH --cpus-per-task=8", "#SBATCH --mem=30G", "#SBATCH -t 08:00:00", "--nthreads 8"):
        assert part in script, script


LOCAL_SLURM = """
import sys

import dask_jobqueue
from dask_jobqueue.local import LocalCluster

sys.path.insert(0, {folder!r})
import cluster


def without_slurm(walltime, **options):
    return LocalCluster(**options | {{"cores": 1, "memory": "1GB"}})


dask_jobqueue.SLURMCluster = without_slurm
cluster.main()
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_a_pipeline_on_workers_of_dask_jobqueue(tmp_path):
    """Jobs are processes on this machine; log, summary and exit codes equal those of ``gdm run``."""
    (tmp_path / "small.toml").write_text(
        'name = "small"\n[ingest.train]\nreader = "twin"\nlike = "paper"\nscale = 0.03\n'
        "[fit]\nn_features_to_select = 3\n"
    )
    (tmp_path / "start.py").write_text(LOCAL_SLURM.format(folder=str(DEPLOY / "slurm")))

    command = [sys.executable, "start.py", "small.toml", "--workers", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "3 supports" in done.stdout
    assert "cluster tcp://" in done.stderr


def test_a_pipeline_that_cannot_be_read_asks_nothing_of_slurm(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cluster.py", "nothing.toml", "--workers", "1"])
    with pytest.raises(SystemExit) as ended:
        slurm_cluster().main()
    assert ended.value.code == 2
    assert "nothing.toml: the pipeline cannot be read" in capsys.readouterr().err


def test_what_is_installed_in_a_folder_is_started_there():
    for page in (DEPLOY / "cron/README.md", DEPLOY / "systemd/README.md"):
        programs = [words_of(line)[0] for line in shell_lines(page)]
        assert "/opt/gdm/bin/gdm" in programs
        assert "gdm" not in programs, f"{page}: the venv is in /opt/gdm, and nobody put it on the PATH"
