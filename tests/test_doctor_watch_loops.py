"""Loops of strange form, but sound: a watch has nothing to say of them, and never stops them."""

from __future__ import annotations

import contextlib

import numpy as np
import paddle
import pytest
import torch
from torch import nn

from alignment_doctor.watch import Watch
from mobilenetv3_common.errors import UserError
from tests.watched import SIDES, batches

CASES = {}


def sound(loop):
    """A loop; it takes ``watch``, which makes watches that must not tell anything."""
    CASES[loop.__name__] = loop
    return loop


def torch_net():
    return SIDES["torch"].Net("")


def given(count, framework="torch", seed=0):
    tensor = SIDES[framework].tensor
    return [(tensor(pictures), tensor(labels)) for pictures, labels in batches(count, seed)]


def cross_entropy(logits, labels):
    return nn.functional.cross_entropy(logits, labels)


def train(model, optimizer, watch, count=8, call=None, schedule=None):
    model.train()
    for pictures, labels in given(count):
        loss = cross_entropy((model if call is None else call)(pictures), labels)
        loss.backward()
        watch.before_update(loss)
        optimizer.step()
        optimizer.zero_grad()
        if schedule is not None:
            schedule.step()
        watch.after_update()


def step(loss, optimizer, watch):
    loss.backward()
    watch.before_update(loss)
    optimizer.step()
    optimizer.zero_grad()
    watch.after_update()


@sound
def two_networks_of_a_gan(watch):
    maker = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    judge = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    of_maker, of_judge = torch.optim.Adam(maker.parameters(), 2e-4), torch.optim.Adam(judge.parameters(), 2e-4)
    watches, criterion = [watch(maker, of_maker), watch(judge, of_judge)], nn.functional.binary_cross_entropy_with_logits
    for _ in range(8):
        made = maker(torch.randn(16, 4))
        judge.zero_grad()  # what the maker's loss has left there
        loss = criterion(judge(torch.randn(16, 8)), torch.ones(16, 1)) + criterion(judge(made.detach()), torch.zeros(16, 1))
        loss.backward()
        watches[1].before_update(loss)
        of_judge.step()
        watches[1].after_update()
        maker.zero_grad()
        loss = criterion(judge(made), torch.ones(16, 1))
        loss.backward()
        watches[0].before_update(loss)
        of_maker.step()
        watches[0].after_update()


@sound
def closures_of_lbfgs_until_it_stands_still(watch):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters())
    one, pictures = watch(model, optimizer), torch.randn(32, 2)

    def closure():
        optimizer.zero_grad()
        loss = (model(pictures) - pictures.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    for _ in range(12):
        one.before_update(closure())
        optimizer.step(closure)
        one.after_update()


@sound
def two_outputs_and_two_calls_in_one_backward_pass(watch):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 3), nn.Linear(8, 4)

        def forward(self, pictures):
            return self.a(pictures), self.b(pictures)

    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    one = watch(model, optimizer, accumulate=2)
    for number in range(12):
        (first, second), (_, third) = model(torch.randn(8, 8)), model(torch.randn(8, 8))
        loss = (first.square().mean() + second.square().mean() + cross_entropy(third, torch.randint(0, 4, (8,)))) / 2
        loss.backward()
        if number % 2:
            one.before_update(np.float32(loss.item()))
            optimizer.step()
            optimizer.zero_grad()
            one.after_update()


@sound
def experts_of_which_one_is_chosen(watch):
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts, self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4)), nn.ModuleList([nn.Linear(8, 8)])
            self.head = nn.Linear(8, 4)

        def forward(self, pictures):
            made = self.experts[int(torch.randint(0, 4, ()))](pictures)
            return self.head(self.layers[0](made) if torch.rand(()) > 0.5 else made)

    model = Experts()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    one = watch(model, optimizer)
    for _ in range(24):
        step(cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 4, (8,))), optimizer, one)


@sound
def branches_and_heads_that_begin_at_zero(watch):
    class Zero(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
            nn.init.zeros_(self.b.weight)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

        def forward(self, pictures):
            return self.head(pictures + self.b(torch.relu(self.a(pictures))))

    model = Zero()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    one = watch(model, optimizer)
    for _ in range(6):
        step(cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 4, (8,))), optimizer, one)


@sound
def a_loss_that_is_zero_for_now(watch):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    one = watch(model, optimizer)
    for number in range(20):
        reward = float(number % 5 == 0)
        step(-(torch.log_softmax(model(torch.randn(8, 4)), -1)[:, 0] * reward).mean(), optimizer, one)


@sound
def parts_that_are_frozen_and_freed_during_the_run(watch):
    model = torch_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    one = watch(model, optimizer)
    for change in (True, False, True):
        model.features[0].requires_grad_(change)
        train(model, optimizer, one, 5)


@sound
def two_optimizers_one_or_both_of_them_given(watch):
    model = torch_net()
    first, second = torch.optim.SGD(model.features.parameters(), 0.01), torch.optim.AdamW(model.head.parameters(), 1e-3)
    for told in (first, [first, second]):
        one = watch(model, told)
        for pictures, labels in given(5):
            loss = cross_entropy(model(pictures), labels)
            loss.backward()
            one.before_update(loss)
            for optimizer in (first, second):
                optimizer.step()
                optimizer.zero_grad()
            one.after_update()


@sound
def updates_within_the_backward_pass(watch):
    model = torch_net()
    each = {parameter: torch.optim.SGD([parameter], 0.01) for parameter in model.parameters()}

    def update(parameter):
        each[parameter].step()
        each[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    one = watch(model, list(each.values()))
    for pictures, labels in given(6):
        loss = cross_entropy(model(pictures), labels)
        loss.backward()
        one.before_update(loss)
        one.after_update()


@sound
def sparse_gradients_and_shared_weights(watch):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.table, self.last = nn.Embedding(500, 8, sparse=True), nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
            self.last.weight = self.table.weight

        def forward(self, words):
            return self.last((self.rows(words) + self.table(words % 20)).mean(1))

    model = Shared()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    one = watch(model, optimizer)
    for _ in range(6):
        words = torch.randint(0, 500, (8, 5))
        step(cross_entropy(model(words), words[:, 0] % 20), optimizer, one)


@sound
def weights_in_16_bits_that_a_small_rate_does_not_always_move(watch):
    model = torch_net().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    one = watch(model, optimizer)
    for pictures, labels in given(24):
        step(cross_entropy(model(pictures.bfloat16()).float(), labels), optimizer, one)


@sound
def a_scaler_that_skips_updates_and_a_clipping_after_unscaling(watch):
    model = torch_net()
    optimizer, scaler = (
        torch.optim.SGD(model.parameters(), 1e-3),
        torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=4),
    )
    one = watch(model, optimizer, scaler=scaler)
    for pictures, labels in given(16):
        loss = cross_entropy(model(pictures), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        one.before_update(loss)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        one.after_update()


@sound
def schedules_of_all_kinds(watch):
    kinds = torch.optim.lr_scheduler
    for make in (
        lambda o: kinds.OneCycleLR(o, 0.05, total_steps=40),
        lambda o: kinds.CosineAnnealingWarmRestarts(o, 4),
        lambda o: kinds.LambdaLR(o, lambda unit: min(1.0, unit / 5)),  # begins at 0
        lambda o: kinds.CyclicLR(o, 1e-4, 0.01, step_size_up=4),
    ):
        model = torch_net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        train(model, optimizer, watch(model, optimizer), 10, schedule=make(optimizer))


@sound
def evaluations_of_all_kinds_between_updates(watch):
    model = torch_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    one = watch(model, optimizer)
    with one.evaluating(), torch.no_grad():  # before the first update
        model.eval()(given(1)[0][0])
    train(model, optimizer, one, 3)
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with one.evaluating(), torch.no_grad():  # averaged weights, put back
        model.load_state_dict({name: tensor * 0.9 if tensor.is_floating_point() else tensor for name, tensor in kept.items()})
        model.eval()(given(1)[0][0])
        model.load_state_dict(kept)
    train(model, optimizer, one, 3)
    model.eval()(given(1)[0][0])  # not told, with a graph
    train(model, optimizer, one, 3)
    with contextlib.suppress(ZeroDivisionError), one.evaluating():
        raise ZeroDivisionError
    one.after_update()  # an update that was not told before
    train(model, optimizer, one, 3)


@sound
def an_optimizer_of_ones_own_and_data_parallel(watch):
    class Own:
        def __init__(self, parameters):
            self.param_groups = [{"params": list(parameters), "lr": 0.01}]

        def step(self):
            for parameter in self.param_groups[0]["params"]:
                parameter.data.sub_(0.01 * parameter.grad)

        def zero_grad(self):
            for parameter in self.param_groups[0]["params"]:
                parameter.grad = None

    model = torch_net()
    optimizer = Own(model.parameters())
    train(model, optimizer, watch(model, optimizer), call=nn.DataParallel(model))


@sound
def paddle_in_strange_forms(watch):
    layers, criterion = paddle.nn, paddle.nn.functional.cross_entropy
    model = SIDES["paddle"].Net("")
    features, head = list(model.features.parameters()), list(model.head.parameters())
    grouped = [{"params": features, "learning_rate": 0.1}, {"params": head, "weight_decay": 0.0}]
    optimizers = [
        [paddle.optimizer.SGD(0.01, features), paddle.optimizer.AdamW(1e-3, parameters=head)],
        [paddle.optimizer.AdamW(0.01, parameters=grouped)],
    ]
    static = paddle.jit.to_static(model, full_graph=True)
    for call, many in ((model, optimizers[0]), (model, optimizers[1]), (static, optimizers[1])):
        one = watch(model, many)
        for pictures, labels in given(6, "paddle"):
            loss = criterion(call(pictures), labels)
            loss.backward()
            one.before_update(loss)
            for optimizer in many:
                optimizer.step()
                optimizer.clear_grad()
            one.after_update()
    table = layers.Sequential(layers.Embedding(50, 8, sparse=True), layers.Flatten(), layers.Linear(40, 4))
    optimizer = paddle.optimizer.SGD(0.1, table.parameters())
    one = watch(table, optimizer)
    for _ in range(5):
        words = paddle.randint(0, 50, [8, 5])
        loss = criterion(table(words), words[:, 0] % 4)
        loss.backward()
        one.before_update(loss)
        optimizer.step()
        optimizer.clear_grad()
        one.after_update()


@pytest.mark.parametrize("case", CASES)
def test_a_sound_loop_of_strange_form_has_no_event(case):
    torch.manual_seed(0)
    paddle.seed(0)
    watches = []

    def watch(model, optimizer, **settings):
        watches.append(Watch(model, optimizer, say=lambda line: pytest.fail(line), every=3, **settings))
        return watches[-1]

    CASES[case](watch)
    for one in watches:
        one.close()
        assert one.findings and not one.events


@pytest.mark.slow
@pytest.mark.parametrize("told", ["inside", "compiled"])
def test_a_compiled_model_is_watched_without_what_needs_its_call(told):
    model = torch_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    watch = Watch(compiled if told == "compiled" else model, optimizer, say=lambda line: pytest.fail(line), every=3)
    train(model, optimizer, watch, call=compiled)
    assert watch.findings["watch.left_over"].outcome.measured.startswith("the model was not called as a whole")
    assert watch.findings["watch.stands_still"].outcome.measured == "10 parameters move"


@pytest.mark.slow
def test_a_model_of_which_a_part_is_compiled_is_watched():
    model = torch_net()
    model.features = torch.compile(model.features, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watch = Watch(model, optimizer, say=lambda line: pytest.fail(line), every=3)
    train(model, optimizer, watch)
    assert watch.findings["watch.unregistered"].outcome.verdict.value == "none found"
    assert watch.findings["watch.stands_still"].outcome.measured == "10 parameters move"


@pytest.mark.parametrize(
    ("model", "optimizer", "said"),
    [
        (lambda: torch.jit.script(nn.Linear(2, 2)), lambda m: torch.optim.SGD(m.parameters(), 0.1), "torch.jit cannot be watched"),
        (lambda: nn.LazyLinear(2), lambda m: torch.optim.SGD(m.parameters(), 0.1), "parameter weight has no shape yet"),
        (lambda: nn.Linear(2, 2), lambda m: object(), "object is no optimizer of torch"),
        (lambda: paddle.nn.Linear(2, 2), lambda m: None, "NoneType is no optimizer of Paddle"),
    ],
)
def test_what_cannot_be_watched_is_refused_in_one_line(model, optimizer, said):
    made = model()
    with pytest.raises(UserError, match=said):
        Watch(made, optimizer(made))
