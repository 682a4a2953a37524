"""Options shared by several commands: the parameters of a fit, and the connection to a cluster."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from gdm_dask.errors import BadInput

# Further boxes of the help of a command, below the common options.
_search = functools.partial(typer.Option, rich_help_panel="Search")
_features = functools.partial(typer.Option, rich_help_panel="Features that must, must not or enter together")
place = functools.partial(typer.Option, rich_help_panel="Computer, cluster and storage")

Store = Annotated[str, typer.Argument(metavar="STORE", help="A feature store: folder or URL.")]
Task = Annotated[str | None, typer.Option(help="classification or regression; by default inferred from the target.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]

Supports = Annotated[
    int | None,
    typer.Option(
        "--n-features-to-select", "-k", help="Number of supports to select; by default all features with a weight."
    ),
]
Tau = Annotated[
    float, typer.Option(help="Two features correlate if |rho| >= 1 - tau; 0 disables the constraint (FGM).")
]
TradeOff = Annotated[
    str,
    typer.Option(
        "--C", help="Trade-off between margin and errors, for unit-norm features; auto chooses it from the data."
    ),
]
Master = Annotated[str | None, _search(help="Master problem: merged (default with -k) or cuts.")]
CutSize = Annotated[str, _search(help="Maximum number of features per cut, or auto.")]
MaxCuts = Annotated[int | None, _search(help="Maximum number of cuts; by default 100, or no limit with -k.")]
Tolerance = Annotated[float, _search(help="Stop when the relative gap between the bounds is this small.")]
Matching = Annotated[str, _search(help="How to search for a cut: greedy or exact.")]
Measure = Annotated[str, _search(help="Correlation measure: pearson, spearman, cosine, su or ig.")]
Linkage = Annotated[
    str, _search(help="Group of a support: star, clique (all members correlate), or component (chains of them).")
]
Intercept = Annotated[bool, _search(help="Fit an intercept; the paper's problem (3) has none.")]
Groups = Annotated[bool, _search(help="Find the groups of the supports.")]
Certify = Annotated[
    bool, _search("--certify", help="Prove how good the selected supports are; takes further reads of the data.")
]
Include = Annotated[
    str | None,
    _features(
        metavar="NAMES|FILE", help="Features that are always supports: separated by commas, or a file, one per line."
    ),
]
Exclude = Annotated[
    str | None,
    _features(
        metavar="NAMES|FILE", help="Features that are never supports: separated by commas, or a file, one per line."
    ),
]
GroupsOf = Annotated[
    str | None,
    _features(
        metavar="FILE", help="Features that enter together: a feature, a tab and the name of its variable per line."
    ),
]
ClassWeight = Annotated[str | None, typer.Option(help="balanced: give all classes the same total weight.")]
MemoryLimit = Annotated[
    str | None, place(help="Memory limit of all processes; by default a quarter of this computer's memory.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an unfinished fit in the folder.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the contents of the folder.")]

Scheduler = Annotated[
    str | None,
    place(
        help="synchronous, threads, processes, local (a cluster on this computer), the address of a Dask scheduler "
        "(tcp://, tls://) or its scheduler file.",
        envvar="GDM_SCHEDULER",
    ),
]
Cluster = Annotated[
    str,
    typer.Option("--scheduler", help="Address of the Dask scheduler, or its scheduler file.", envvar="GDM_SCHEDULER"),
]
TlsCa = Annotated[str | None, place(help="Certificate of the authority that signed the cluster's certificate.")]
TlsCert = Annotated[str | None, place(help="Client certificate for tls://.")]
TlsKey = Annotated[str | None, place(help="Private key of the client certificate.")]
Workers = Annotated[int | None, place(min=1, help="Number of workers of a local scheduler; by default one per core.")]
StorageOptions = Annotated[
    list[str] | None,
    place(
        "--storage-option",
        metavar="KEY=VALUE",
        help="For URLs: endpoint_url, profile, patience (seconds), ...; give it several times.",
        envvar="GDM_STORAGE_OPTIONS",
        show_envvar=True,
    ),
]
#: Storage options whose values stay text even if they look like numbers.
_TEXT = re.compile("key|secret|token|password|user|account|id$")


def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add groups of options to a command.

    A parameter of the command that is named like a group is replaced by the parameters of the group's function; the
    command receives the return value of that function.

    Examples
    --------
    >>> def size(rows: int = 2, columns: int = 3) -> tuple[int, int]:
    ...     return rows, columns
    >>> @takes(shape=size)
    ... def draw(name: str, shape: Any = None) -> None:
    ...     print(name, shape)
    >>> draw(name="a", columns=5)
    a (2, 5)
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            group = groups.get(parameter.name)
            shown = [parameter] if group is None else inspect.signature(group, eval_str=True).parameters.values()
            parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in shown]

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            for name, group in groups.items():
                own = set(inspect.signature(group).parameters) & set(given)
                given[name] = group(**{key: given.pop(key) for key in own})
            command(**given)

        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapper

    return decorate


def fit_parameters(
    n_features_to_select: Supports = None,
    tau: Tau = 0.25,
    C: TradeOff = "auto",
    cut_size: CutSize = "auto",
    max_cuts: MaxCuts = None,
    tol: Tolerance = 1e-3,
    matching: Matching = "greedy",
    fit_intercept: Intercept = True,
    groups: Groups = True,
    certify: Certify = False,
    memory_limit: MemoryLimit = None,
    class_weight: ClassWeight = None,
    master: Master = None,
    measure: Measure = "pearson",
    linkage: Linkage = "star",
    include: Include = None,
    exclude: Exclude = None,
    groups_of: GroupsOf = None,
) -> dict[str, Any]:
    """Return the parameters of `GroupDiscoveryMachine` from the options of a command."""
    given = dict(locals())  # they have the same names
    given |= {"C": _parsed(C, float), "cut_size": _parsed(cut_size, int), **constraints(include, exclude, groups_of)}
    from gdm_dask.settings.settings import check_parameters

    check_parameters(given)
    return given


def constraints(include: Include = None, exclude: Exclude = None, groups_of: GroupsOf = None) -> dict[str, Any]:
    """Return the parameters about features that must or must not be supports, or enter together."""
    given = {"include": include, "exclude": exclude, "groups_of": groups_of}
    if not any(given.values()):
        return {}
    from gdm_dask.settings.constraint_files import read_constraints

    return read_constraints(given)


def security(tls_ca: TlsCa = None, tls_cert: TlsCert = None, tls_key: TlsKey = None) -> Any:
    """Return Dask's `Security`, or None to use Dask's own configuration."""
    if tls_ca is None and tls_cert is None and tls_key is None:
        return None
    from distributed.security import Security

    if tls_ca is None or tls_cert is None or tls_key is None:
        raise BadInput("--tls-ca, --tls-cert and --tls-key must be given together")
    return Security(tls_ca_file=tls_ca, tls_client_cert=tls_cert, tls_client_key=tls_key, require_encryption=True)


def storage(storage_option: StorageOptions = None) -> dict[str, Any] | None:
    """Return storage options from ``key=value`` pairs; dots make nested tables. Errors do not show values."""
    options: dict[str, Any] = {}
    for pair in storage_option or ():
        key, equals, value = pair.partition("=")
        *tables, last = key.split(".")
        if not (equals and all([*tables, last])):
            raise BadInput("--storage-option must be KEY=VALUE, such as endpoint_url=http://127.0.0.1:9000")
        table = options
        for name in tables:
            table = table.setdefault(name, {})
        table[last] = value if _TEXT.search(last) else _parsed(value, bool, int, float)
    return options or None


def _parsed(text: str, *kinds: type) -> Any:
    """Return the number or truth value that a text stands for, else the text.

    >>> _parsed("true", bool), _parsed("5", int, float), _parsed("0.5", int, float), _parsed("auto", float)
    (True, 5, 0.5, 'auto')
    """
    for kind in kinds:
        with suppress(ValueError, KeyError):
            return {"true": True, "false": False}[text] if kind is bool else kind(text)
    return text


@contextmanager
def connected(scheduler: str, security: Any) -> Iterator[Any]:
    """Connect a client to a running cluster."""
    from gdm_dask.engine.connect import open_client

    client = open_client(scheduler, security)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def chosen_scheduler(scheduler: str | None, security: Any) -> Iterator[Any]:
    """Return the `scheduler` of an estimator: a client if certificates are needed, otherwise the name."""
    if security is None:
        yield scheduler
        return
    if scheduler is None:
        raise BadInput("--tls-ca, --tls-cert and --tls-key need --scheduler tls://...")
    with connected(scheduler, security) as client:
        yield client
