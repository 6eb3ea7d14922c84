"""What every step works with: the project, its model with weights and inputs, and the runs that are compared."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alignment.compare import distance, norm, relative, without_masked
from alignment.frameworks._dropout import Sharing
from alignment.frameworks._low import BITS, rounded_at_random
from alignment.frameworks.base import STATISTICS, Framework, Low, Module, in_precision, leaves, mapped
from alignment.models import calibration, observe, rounding, unsaved
from alignment.models.links import Link, forms_of
from alignment.models.matching import Matched, matched
from alignment.models.mending import mend_all
from alignment.models.names import check_names
from alignment.models.outputs import Order, orders_of, put_in_order
from alignment.models.tracing import Network
from alignment.models.weights import load_file, renamed, translated
from alignment.project import ModelSpec, Project, Side
from mobilenetv3_common.dataset_index import DatasetIndex, index_dataset
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.image import decode_image
from mobilenetv3_common.presets import EvalPreset
from mobilenetv3_common.terminal import Progress
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights import State, canonical_state, own_state, read_state

ULP_SEED = 20
PASSES = 8  # that a network makes with the same weights and inputs before its outputs are taken to be no matter of chance


class Weights(NamedTuple):
    """The weights that the steps run with.

    Attributes:
        state: canonical, float32, without counters.
        name: where they come from.
        options: of the builders, which fit them.
        calibrated: whether they are made so that outputs have a known spread, and accuracies are neither 0 nor 1.
    """

    state: State
    name: str
    options: Mapping[str, Any]
    calibrated: bool


@dataclass
class Context:
    """The model, weights, pictures and the two sides.

    Attributes:
        project: what is aligned.
        model: name of one of its models; the first where empty.
        data_path: pictures; the project's own by default.
        weights_from: None for calibrated weights, the name of published ones, or a file.
        given_state: a canonical state to use instead.
        port_weights: a file that holds the same weights converted for the port, which the port then takes as it is.
        names: of modules of the port, or whole parts, that are called otherwise: port path -> reference path.
        links: tensors of the port that hold those of the reference otherwise, as a person wrote them.
        options: of the model's builders, besides those of its spec.
        seed: of fake data, ulp changes and dropout masks.
        device: of both frameworks.
        image_backend: decoder of pictures.
        recipe: what steps 5 and 6 train by instead of the project's own recipe, in small; ``recipe_name`` is for people.
        precision: in which steps 1, 4 and 5 compare besides, ``"bfloat16"`` or ``"float16"``; none where empty.
        without_training: why training mode is not compared; ``""`` to compare it where it can be.
        updates: how many the step without training code makes (``alignment.comparisons.update.updates``); none where 0.
        fitting: whether the port takes the reference's weights where they fit and keeps its own elsewhere: to look further
            where the structure or the weights are wrong.
        mended: modules that compute in the port what they compute in the reference, by the reference's paths, since their mistakes
            are known.
        known_fresh: parameters whose fresh values are known to be drawn otherwise.
        accepted: one line for each difference that was accepted beforehand and is there.
        in_haste: whether steps 5 and 6 compare what is quick first, and end where something has failed: for many attempts of which
            nobody reads the rows.
        kept: a folder in which step 6 keeps the reference's training runs for the next attempt; none where None. They depend on
            nothing of the port.
        progress: what is told how far a long step is.
    """

    project: Project
    model: str = ""
    data_path: Path | None = None
    weights_from: str | None = None
    given_state: State | None = None
    port_weights: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[Link] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "cpu"
    image_backend: str = "pil"
    recipe: TrainConfig | None = None
    recipe_name: str = ""
    precision: str = ""
    without_training: str = ""
    updates: int = 0
    fitting: bool = False
    mended: tuple[str, ...] = ()
    known_fresh: frozenset[str] = frozenset()
    accepted: tuple[str, ...] = ()
    in_haste: bool = False
    kept: Path | None = None
    progress: Progress = field(default_factory=Progress, compare=False)

    def __post_init__(self) -> None:
        self.model = self.model or next(iter(self.project.models))
        if self.model not in self.project.models:
            raise UserError(f"unknown model {self.model!r}: use one of {', '.join(self.project.models)}")
        self.data_path = self.data_path or self.project.sample_data

    @property
    def port(self) -> Side:
        return self.project.port

    @property
    def reference(self) -> Side:
        return self.project.reference

    @property
    def sides(self) -> dict[str, Side]:
        """``{"port": ..., "reference": ...}``"""
        return {"port": self.port, "reference": self.reference}

    @property
    def spec(self) -> ModelSpec:
        return self.project.models[self.model]

    def titles(self) -> tuple[str, str]:
        """What to call the two sides: the names of their frameworks where these differ."""
        names = self.port.framework.title, self.reference.framework.title
        return names if names[0] != names[1] else (f"ported {names[0]}", f"reference {names[1]}")

    def check(self) -> None:
        """See that the project's description of the model holds, before anything is said of the port.

        Raises:
            UserError: the reference cannot be built or run, a side is no model of its framework, or a named layer is not there.
        """
        title = f"{self.project.name}: the reference of {self.model}"
        try:
            network = self._made("reference", self.options)
        except Exception as error:  # a stranger's builder raises what it likes
            raise UserError(f"{title} cannot be built: {type(error).__name__}: {error}") from error
        self._check_type("reference", network)
        try:
            port = self._made("port", self.options)
        except Exception:  # that is a finding of the steps
            port = None
        if port is not None:
            self._check_type("port", port)
        framework = self.reference.framework
        known = framework.modules(network)
        check_names(self.names, None if port is None else self.port.framework.modules(port), known)
        if port is not None:
            forms_of(self.links, self.port.framework.entries(port), framework.entries(network))
        named = [self.spec.last_layer] if self.spec.last_layer is not None else []
        named += self.spec.blocks(framework, network) if self.spec.blocks is not None else []
        for path in named:
            if path not in known:
                raise UserError(f"{title} has no module {path!r}: last_layer and blocks name modules of the reference")
        for field_name in ("compared_options", "compared_structures"):
            for options in getattr(self.spec, field_name):
                if refusal := self.refusal(options):
                    raise UserError(f"{title} does not take {field_name} {dict(options)}: {refusal}")
        for small in (True, False):
            inputs = self.fake_inputs(2, small)
            arrays = leaves(inputs, np.ndarray)
            samples = self.spec.whole_inputs or all(array.ndim and len(array) == 2 for array in arrays)
            if not isinstance(inputs, tuple) or not arrays or not samples:
                raise UserError(f"{self.project.name}: inputs of {self.model} must return a tuple of arrays, samples first")
            framework.set_training(network, False)
            try:
                framework.call(framework.place(network), inputs)
            except Exception as error:
                shapes = ", ".join(str(array.shape) for array in arrays)
                raise UserError(f"{title} cannot run on inputs of shape {shapes}: {type(error).__name__}: {error}") from error

    def refusal(self, options: Mapping[str, Any]) -> str:
        """Why the reference's builder does not take options besides those of its spec; ``""`` where it does."""
        try:
            inspect.signature(self.spec.reference).bind(**{**self.spec.options, **options})
        except TypeError as error:
            return str(error)
        return ""

    def _check_type(self, role: str, network: Module) -> None:
        framework = self.sides[role].framework
        if not isinstance(network, framework.module_type):
            found = f"must make a {framework.title} model, found one of type {type(network).__name__}"
            raise UserError(f"{self.project.name}: the builder of the {role} of {self.model} {found}")

    # --- models ------------------------------------------------------------------------------------------------------------

    def fresh(self, role: str, options: Mapping[str, Any] | None = None) -> Module:
        """A new model of one side with its own fresh weights, float32, where it was built."""
        return self.named(role, self._made(role, self.weights.options if options is None else options))

    def _to_be_loaded(self, role: str) -> Module:
        """As ``fresh(role)``; where loading gives a value to every parameter or raises, without random draws for large ones."""
        whole = role == "reference" or (self.spec.load is None and not self.fitting)
        with self.sides[role].framework.loaded_next() if whole else contextlib.nullcontext():
            return self.fresh(role)

    def unfilled(self, role: str, options: Mapping[str, Any]) -> Module:
        """A new model of one side for its names and shapes: its parameters may have no values."""
        with self.sides[role].framework.unfilled():
            network = self._made(role, {**self.options, **options})
        return self.named(role, network)

    def _made(self, role: str, options: Mapping[str, Any]) -> Module:
        side = self.sides[role].framework
        with side.default_dtype("float32"), side.building():
            return getattr(self.spec, role)(**{**self.spec.options, **options})

    def named(self, role: str, network: Module) -> Module:
        """The model of one side, known by the reference's paths, and its tensors in pieces, where the two sides' own are others."""
        if role == "port":
            self.matched.name(network, 0)
            put_in_order(self.port.framework, self.port.framework.modules(network), self.orders)
        elif self._port_matches:
            self.matched.name(network, 1)
        return network

    @functools.cached_property
    def constants(self) -> tuple[str, ...]:
        """Names of the reference's tensors that no training changes: neither trained nor running statistics."""
        framework = self.reference.framework
        return tuple(
            entry.canonical
            for entry, tensor in framework.described(self.fresh("reference"))
            if entry.canonical.rpartition(".")[2] not in STATISTICS and (entry.role == "buffer" or not framework.trainable(tensor))
        )

    @functools.cached_property
    def orders(self) -> Mapping[str, Order]:
        """Of the named outputs of the reference's modules, by path; nothing where it does not run, which ``check`` says."""
        framework, network = self.reference.framework, self._made("reference", self.options)
        framework.set_training(network, False)
        try:
            inputs = self.fake_inputs(2, small=True)
            return orders_of(framework.call(framework.place(network), inputs, watched=framework.modules(network)).calls)
        except Exception:
            return {}

    @functools.cached_property
    def _port_matches(self) -> bool:
        """Whether the port can be built, and so matched."""
        try:
            return bool(self.matched)
        except Exception:  # whatever it raises, the steps say so
            return False

    @functools.cached_property
    def matched(self) -> Matched:
        """Which module of the port is which of the reference.

        Raises:
            Exception: whatever the port's builder raises.
        """
        return self._match(self._made("port", self.options))

    def _match(self, port: Module) -> Matched:
        reference = self._made("reference", self.options)
        return matched(port, reference, self.names, self.frameworks, lambda: self.fake_inputs(2, small=True), self.links)

    def matched_port(self) -> Module:
        """As ``fresh("port")``; where nothing is matched yet, this model is, which saves building another.

        Raises:
            Exception: whatever the port's builder raises.
        """
        port = self._made("port", self.weights.options)
        if "matched" not in self.__dict__:
            self.__dict__["matched"] = self._match(port)
        return self.named("port", port)

    @property
    def frameworks(self) -> tuple[Framework, Framework]:
        """Of the port and of the reference."""
        return self.port.framework, self.reference.framework

    def build(self, role: str, exact: bool = False) -> Module:
        """A model of one side with the reference's weights, in evaluation mode; float32, or in exact mode.

        Raises:
            UserError: the weights do not fit.
        """
        framework = self.sides[role].framework
        network = self._to_be_loaded(role)
        if exact:
            network = self.exact(role, network)
        network = framework.place(network)
        self.load(role, network, self.start(role))
        framework.set_training(network, False)
        return network

    def start(self, role: str) -> State:
        """The canonical state with which a side starts: of the port, that of its converted file where there is one.

        Raises:
            UserError: the converted file cannot be read, or does not fit the port.
        """
        return self.weights.state if role == "reference" or self.port_weights is None else self._converted

    @functools.cached_property
    def _converted(self) -> State:
        assert self.port_weights is not None
        return self.port.framework.canonical(self.fresh("port"), read_state(self.port_weights), self.port_weights)

    def exact(self, role: str, network: Module) -> Module:
        """A model of one side in exact mode, in place, with the roundings of eps under which the two sides can agree."""
        network = self._exactly(role, network)
        rounding.apply(self.sides[role].framework, network, self.roundings[role])
        return network

    def _exactly(self, role: str, network: Module) -> Module:
        framework = self.sides[role].framework
        network = framework.make_exact(network)
        if role == "port" and self.tables:
            unsaved.share(framework, network, self.tables)
        return network

    @functools.cached_property
    def tables(self) -> unsaved.Tables:
        """Of the reference: see ``alignment.models.unsaved``."""
        return unsaved.tables_of(self.reference.framework, self.fresh("reference"))

    @functools.cached_property
    def roundings(self) -> Mapping[str, rounding.Choice]:
        """Of eps, by role; none where the port cannot be built, which the steps then say."""
        pairs = []
        try:
            for role, side in self.sides.items():
                network = side.framework.place(self._exactly(role, self._to_be_loaded(role)))
                self.load(role, network, self.start(role))
                pairs.append((side.framework, network))
            paths = self.matched.matching.paths
        except Exception:  # whatever the port raises
            return {role: {} for role in self.sides}
        inputs = in_precision(self.fake_inputs(4, small=True))
        return dict(zip(self.sides, rounding.choose(pairs[0], pairs[1], paths, inputs), strict=True))

    def load(self, role: str, network: Module, state: State) -> None:
        """Put a canonical state of the reference, or the one with which a side starts, into a model of one side."""
        if role == "port" and self.fitting:
            self._load_fitting(network, state)
            return
        converted = self.port_weights is not None and state is self.__dict__.get("_converted")
        if role == "port" and self.spec.load is not None and not converted:
            self.spec.load(network, self._regrouped(state, self.weights.options, whole=True))
        else:
            self.sides[role].framework.load(network, state)

    def _load_fitting(self, network: Module, state: State) -> None:
        framework, names = self.port.framework, self.matched.matching.renaming()
        for entry, tensor in framework.described(network):
            values = state.get(renamed(entry, names))
            if values is not None and values.shape == entry.shape:
                framework.assign(tensor, entry.to_own(values))

    def loaded_in_part(self) -> Module | None:
        """A port that does not have the reference's structure, after its own loading of what fits; None where it cannot do that.

        Where nothing of the reference's fits, the port is given what it holds itself, under the names that it knows.
        """
        framework, names = self.port.framework, self.matched.matching.renaming()
        given: State = {}
        network = framework.place(self.fresh("port"))
        for entry, tensor in framework.described(network):
            values = self.weights.state.get(renamed(entry, names))
            if values is None or values.shape != entry.shape:
                values = entry.to_canonical(framework.array(tensor))
            given[entry.canonical] = values
        try:
            load = self.spec.load or framework.load
            load(network, given)
        except Exception:  # whatever the port raises
            return None
        return network

    @functools.cached_property
    def weights(self) -> Weights:
        """The reference's weights.

        Raises:
            UserError: they cannot be had, are damaged or do not fit.
        """
        own = {**self.spec.options, **self.options}
        if self.given_state is not None:
            counters = self.reference.framework.layout.counters
            state = {name: array for name, array in self.given_state.items() if name.rpartition(".")[2] not in counters}
            return Weights(self._regrouped(state, own), "given", own, True)
        if self.weights_from is None:
            return Weights(self._regrouped(self._calibrated(own), own), "calibrated", own, True)
        path = self._weights_file(self.weights_from)
        try:
            shown = self.matched.shown
        except Exception:  # a port that cannot be built is a finding of the steps, not a reason to read no file
            shown = {}
        options = {**own, **self._options_of(path, shown)}
        try:
            port = self.named("port", self._made("port", options))
        except Exception:
            port = None
        reference = self.named("reference", self._made("reference", options))
        sides = (self.reference.framework, reference), (self.port.framework, port)
        name = path.name if self.weights_from in self.spec.published else self.weights_from
        return Weights(load_file(path, sides), name, options, False)

    def _regrouped(self, state: State, options: Mapping[str, Any], whole: bool = False) -> State:
        """The reference's state in the pieces by which the engine knows its tensors, from whole tensors; or the other way round."""
        if not (self._port_matches and self.matched.forms[1]):
            return state
        network = self._made("reference", options)
        described = self.reference.framework.described(network)
        plain = [entry for entry, _ in described]
        pieces = self.reference.framework.entries(self.named("reference", network))
        first = {id(tensor): entry.own for entry, tensor in reversed(described)}
        known = {entry.own for entry in pieces}
        unknown = {entry.own: tensor for entry, tensor in described if entry.own not in known}  # second names, and constants
        if whole:
            own = own_state(state, pieces, "the weights")
            for name, tensor in unknown.items():
                other = first[id(tensor)]
                own[name] = own[other] if other in own else self.reference.framework.array(tensor)
            return canonical_state(own, plain, "the weights")
        own = own_state(state, plain, "the weights")
        return canonical_state({n: array for n, array in own.items() if n not in unknown}, pieces, "the weights")

    def _weights_file(self, weights: str) -> Path:
        if weights in self.spec.published:
            return self.spec.published[weights]()
        path = Path(weights)
        if not path.suffix and not path.exists():
            known = ", ".join(self.spec.published) or "none"
            raise UserError(f"--weights {weights}: neither a file nor published weights of {self.model} (those are: {known})")
        return path

    def _options_of(self, path: Path, shown: Mapping[str, str]) -> Mapping[str, Any]:
        """Class count, width and the like, read off the tensors of a file, which may go by the port's own paths."""
        if self.spec.options_of is None:
            return {}
        return self.spec.options_of({translated(name, shown): array for name, array in read_state(path).items()})

    def _calibrated(self, options: Mapping[str, Any]) -> State:
        def make() -> State:
            return calibration.calibrated_state(self.project, self.model, **self.options)

        if self.project.cache is None or self.options:
            return make()
        file = self.project.cache() / f"{self.model}-calibrated-v{calibration.VERSION}.safetensors"
        return calibration.kept_state(file, self.reference.framework, self._made("reference", options), make)

    def notes(self) -> list[str]:
        """What a reader of the verdict has to know: layers called or nested otherwise, and which conversion was not checked."""
        try:
            found = [*self.accepted, *(f"{note} (--names sets other pairs)" for note in self.matched.matching.notes)]
        except Exception:  # a port that cannot be built is a finding of the steps
            found = [*self.accepted]
        if self.port_weights is None and self.given_state is None:
            found.append(
                f"conversion not checked: the engine itself loaded the {self.weights.name} weights into both sides "
                "(--weights ORIGINAL --port-weights CONVERTED compares a converted file)"
            )
        return found

    @functools.cached_property
    def num_classes(self) -> int:
        """Outputs of the reference."""
        if self.spec.last_layer is not None:
            return int(self.weights.state[f"{self.spec.last_layer}.weight"].shape[0])
        network = self.build("reference")
        shape = self.reference.framework.call(network, self.fake_inputs(1)).outputs[0].shape
        return int(shape[-1]) if shape else 1

    @functools.cached_property
    def unshared_randomness(self) -> str:
        """Why the two sides cannot be compared in training mode; ``""`` where they can.

        The masks of dropout layers are shared. What draws numbers by a function, or in a layer that is not known, is not.
        """
        if self.without_training:
            return f"training mode: {self.without_training}"
        lane = Lane(self, "reference32")
        lane.train_mode(True)
        passes = []
        for _ in range(PASSES):
            passes.append(lane.outputs(self.fake_inputs(4, small=True)))
            lane.reset()
        both = [(a, b) for later in passes[1:] for a, b in zip(passes[0], later, strict=True)]
        pairs = [(a, b) for a, b in (without_masked(*one) for one in both) if np.isfinite(a).all()]
        same = all(relative(distance(a, b), norm(a)) < 1e-4 for a, b in pairs)
        return "" if same else "training mode: the reference draws random numbers that cannot be shared (nn.Dropout's can)"

    @functools.cached_property
    def drops_by_function(self) -> frozenset[str]:
        """The roles whose models call a dropout as a function in training mode, where such calls can be seen."""
        inputs = self.fake_inputs(4, small=True)
        return frozenset(role for role in self.sides if Lane(self, f"{role}32").drops_by_function(inputs))

    # --- inputs ------------------------------------------------------------------------------------------------------------

    @property
    def has_pictures(self) -> bool:
        """Whether the model takes pictures, and the project has some."""
        takes = self.spec.inputs is None and len(self.spec.input_shape) == 3 and self.spec.input_shape[0] == 3
        return takes and self.reference.data is not None and self.data_path is not None

    def shape(self, small: bool = False) -> tuple[int, ...]:
        """The shape of one sample: the model's, or the smaller one for many passes."""
        return (self.spec.small_shape if small else None) or self.spec.input_shape

    def index(self, split: str) -> DatasetIndex:
        """The pictures of a split.

        Raises:
            UserError: there are none, or a label is beyond the model's classes.
        """
        if self.data_path is None:
            raise UserError(f"the project {self.project.name} has no pictures of its own: give --data-path")
        index = index_dataset(self.data_path, split, self.num_classes)
        if index.places is not None:
            raise UserError(f"{self.data_path} holds tar shards, which the steps do not read: give their folder")
        return index

    def photographs(self, count: int, size: int = 224) -> tuple[np.ndarray, np.ndarray]:
        """The first ``count`` validation pictures (repeated where there are fewer), preprocessed by the reference.

        Returns:
            float32 (count, 3, size, size) and int64 (count,) labels.
        """
        assert self.reference.data is not None
        index = self.index("val")
        preset = EvalPreset(resize_size=size * 8 // 7, crop_size=size)
        chosen = [i * len(index) // count if len(index) >= count else i % len(index) for i in range(count)]
        transform = self.reference.data.eval_transform
        pictures = {i: np.asarray(transform(decode_image(index.path(i), self.image_backend), preset)) for i in set(chosen)}
        return np.stack([pictures[i] for i in chosen]), np.array([index.labels[i] for i in chosen], dtype=np.int64)

    def fake_data(self, count: int, *shape: int) -> np.ndarray:
        """Standard normal pictures, float32 (count, *shape), a pure function of the seed."""
        return np.random.default_rng([self.seed, count, shape[-1]]).standard_normal((count, *shape)).astype(np.float32)

    def fake_inputs(self, count: int, small: bool = False) -> tuple[Any, ...]:
        """Inputs of one forward pass made without pictures: arrays in the structure that the model takes, samples first."""
        shape = self.shape(small)
        if self.spec.inputs is not None:
            return self.spec.inputs(count, shape, np.random.default_rng([self.seed, count]))
        return (self.fake_data(count, *shape),)

    def samples(self, count: int, small: bool = False) -> tuple[tuple[Any, ...], np.ndarray]:
        """Inputs and labels: photographs where there are some, numbers drawn at random otherwise.

        Returns:
            Arrays with ``count`` as first axis, and int64 (count,) labels.
        """
        if self.has_pictures:
            images, labels = self.photographs(count, self.shape(small)[-1])
            return (images,), labels
        labels = np.random.default_rng([self.seed, count, 1]).integers(0, self.num_classes, count)
        return self.fake_inputs(count, small), labels

    def ulp_changed(self, arrays: Mapping[str, np.ndarray], dtype: str, draw: int = 0) -> dict[str, np.ndarray]:
        """Floating arrays with every element moved by one unit in the last place of ``dtype``, up or down at random.

        In bfloat16 and float16, those of two and more dimensions are put on one of their two neighbours in that type, at random.

        Zeros stay: they have no last place, and are exact wherever they come from. (A bias of 5e-324 instead of 0 puts whole
        feature maps of a zero-initialised residual branch on the other side of their ReLU.)
        """
        rng = np.random.default_rng([self.seed, ULP_SEED, *([draw] if draw else [])])
        changed = {}
        for name, array in arrays.items():
            if array.dtype.kind != "f":
                changed[name] = array
                continue
            if dtype in BITS:  # what mixed precision rounds: the inputs, matrices and kernels
                changed[name] = rounded_at_random(array, dtype, rng) if array.ndim > 1 else array
                continue
            changed[name] = moved_by_one_ulp(array.astype(dtype), rng)
        return changed


def moved_by_one_ulp(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """In place: every element but 0, infinities and NaN becomes the next number of its type, up or down at random.

    As ``np.nextafter`` towards one of the two infinities, at a third of its time.
    """
    bits = values.view(f"i{values.itemsize}")
    away = (rng.random(values.shape) < 0.5) == (values < 0)  # from 0: down for a negative number
    bits += np.where((values == 0) | ~np.isfinite(values), 0, 2 * away.astype(np.int8) - 1).astype(bits.dtype)
    return values


@dataclass
class MaskDraws:
    """The numbers of dropout masks, a pure function of the seed, the iteration and the shape. They know nothing of a model."""

    seed: int
    iteration: int = 0

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers in [0, 1), float64; with the axes in another order they are the same, unless axes of equal length change places.

        So a port with the channels last, or the batch first, drops what its reference drops.
        """
        order = sorted(range(len(shape)), key=lambda axis: -shape[axis])
        drawn = np.random.default_rng([self.seed, self.iteration]).random([shape[axis] for axis in order])
        return np.ascontiguousarray(drawn.transpose(np.argsort(order)))


class Lane:
    """One of the runs that are compared with each other: which side, which precision, which weights.

    A lane whose name begins with ``ulp`` is the reference with all it is given (weights, running statistics, inputs)
    moved by one unit in the last place: what it then changes by is rounding, and nothing can be asked to be closer. A lane whose
    name ends in ``16`` computes in the context's low precision, by the framework's own automatic mixed precision.

    Args:
        context: the model and weights.
        name: a field of ``alignment.compare.Lanes``, e.g. ``"port64"``; ``"ulp64#1"`` is another draw of ``"ulp64"``.
        share_dropout: whether dropout takes its masks from the context's seed and this lane's ``draws.iteration``.

    Attributes:
        role: ``"port"`` or ``"reference"``.
        framework, side: of the role.
        dtype: of weights and inputs, ``"float32"`` or ``"float64"``; the latter is exact mode.
        network: the model.
        dropouts: how many dropout layers share their masks.
        functions: what is told of dropouts that are called as functions, which share theirs, too.
    """

    def __init__(self, context: Context, name: str, share_dropout: bool = True) -> None:
        self.context = context
        self.name = name
        kind, _, draw = name.partition("#")
        self.exact = kind.endswith("64")
        self.dtype = "float64" if self.exact else "float32"
        self.role = "port" if name.startswith("port") else "reference"
        self.side: Side = context.sides[self.role]
        self.framework: Framework = self.side.framework
        self.changed = name.startswith("ulp")
        self.draw = int(draw or 0)
        self.unit = self.dtype  # what one ulp is of
        if kind.endswith("16"):
            self.unit = context.precision
            self.framework = self.framework.in_low_precision(Low(context.precision))
        state = context.start(self.role)
        self.state = context.ulp_changed(state, self.unit, self.draw) if self.changed else state
        self.network = context.build(self.role, exact=self.exact)
        self.draws = MaskDraws(context.seed)
        self.dropouts, self.functions = 0, Sharing(self.draws)
        if share_dropout:
            self.dropouts, self.functions = observe.share_dropout(self.framework, self.network, self.draws)
        if self.role == "port" and context.mended:
            mend_all(self.as_network(), self._reference(share_dropout), context.mended)
        self.reset()

    def _reference(self, share_dropout: bool) -> Network:
        """The reference in this lane's precision, with this lane's masks."""
        framework, low = self.context.reference.framework, self.framework.low
        framework = framework if low is None else framework.in_low_precision(low)
        network = self.context.build("reference", exact=self.exact)
        if share_dropout:
            observe.share_dropout(framework, network, self.draws)
        found = Network(framework, network)
        found.bare |= self.context.matched.matching.bare
        return found

    def as_network(self) -> Network:
        """The model as functions of arrays."""
        if self.role == "reference":
            return Network(self.framework, self.network)
        matching = self.context.matched.matching
        found = Network(self.framework, self.network, matching.paths)
        found.conventions = matching.conventions
        return found

    def inputs(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Inputs in this lane's precision, moved by one ulp where the lane's weights are."""
        if not self.changed:
            return in_precision(given, self.dtype)
        named = {str(number): array for number, array in enumerate(leaves(given, np.ndarray))}
        changed = iter(self.context.ulp_changed(named, self.unit, self.draw).values())
        return mapped(given, np.ndarray, lambda _: next(changed))

    def outputs(self, given: tuple[Any, ...]) -> list[np.ndarray]:
        """What the network gives for inputs, without a graph."""
        return self.framework.call(self.network, self.inputs(given)).outputs

    def drops_by_function(self, given: tuple[Any, ...]) -> bool:
        """Whether the model calls a dropout as a function in training mode, where such calls can be seen."""
        self.train_mode(True)
        with contextlib.suppress(Exception):  # whatever a pass raises, the comparisons say
            self.outputs(given)
        self.reset()
        return bool(self.functions.called)

    def train_mode(self, on: bool) -> None:
        """Training or evaluation mode."""
        self.framework.set_training(self.network, on)

    def reset(self) -> None:
        """Put the weights and statistics back to where the lane starts."""
        self.context.load(self.role, self.network, self.state)
