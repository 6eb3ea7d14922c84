"""Sound loops of other people's kinds, each of which a watch once called a mistake; and what it still has to find there."""

from __future__ import annotations

import copy

import numpy as np
import paddle
import pytest
import torch
from torch import nn
from torch.nn import functional

from alignment_doctor.watch import Watch
from alignment_doctor.watch.watch import resident_mib

CASES = {}


def sound(loop):
    """A loop; it takes ``watch``, which makes watches that must not tell anything."""
    CASES[loop.__name__] = loop
    return loop


def step(watch, loss, optimizer):
    loss.backward()
    watch.before_update(loss)
    optimizer.step()
    optimizer.zero_grad() if isinstance(loss, torch.Tensor) else optimizer.clear_grad()
    watch.after_update()


def samples(count=16, classes=4):
    labels = torch.randint(0, classes, (count,))
    return torch.randn(count, 8) + labels[:, None] * 0.5, labels


def classes_of(model, optimizer, watch, updates, loss=functional.cross_entropy):
    for _ in range(updates):
        given, labels = samples()
        step(watch, loss(model(given), labels), optimizer)


@sound
def a_linear_model_that_begins_with_zeros(watch):
    model = nn.Linear(8, 4)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    classes_of(model, optimizer, watch(model, optimizer), 4)


@sound
def tables_of_words_that_begin_small_or_with_zeros(watch):
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.near = nn.Embedding(200, 64), nn.Embedding(200, 64)
            nn.init.uniform_(self.word.weight, -0.5 / 64, 0.5 / 64)
            nn.init.zeros_(self.near.weight)

        def forward(self, first, second):
            return (self.word(first) * self.near(second)).sum(-1)

    model = Words()
    optimizer = torch.optim.Adam(model.parameters(), 0.025)
    one = watch(model, optimizer)
    for _ in range(5):
        step(one, -functional.logsigmoid(model(*torch.randint(0, 200, (2, 64)))).mean(), optimizer)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 3)

    def forward(self, given):
        made = torch.relu(self.body(given))
        return self.one(made), self.two(made)


@sound
def two_outputs_whose_losses_take_turns(watch):
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    one = watch(model, optimizer)
    for number in range(20):
        given, labels = samples()
        first, second = model(given)
        loss = functional.cross_entropy(first, labels) if number % 2 else functional.cross_entropy(second, labels % 3)
        step(one, loss, optimizer)


@sound
def squeeze_and_excitation_of_one_unit_that_begins_dead(watch):
    class Squeezed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.down, self.act, self.up = nn.Linear(8, 16), nn.Linear(16, 1), nn.ReLU(), nn.Linear(1, 16)
            self.head = nn.Linear(16, 4)
            nn.init.constant_(self.down.weight, -0.1)

        def forward(self, given):
            made = torch.relu(self.body(given))
            return self.head(made * torch.sigmoid(self.up(self.act(self.down(made)))))

    model = Squeezed()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    classes_of(model, optimizer, watch(model, optimizer), 4)


@sound
def normalisation_that_is_frozen_in_the_middle_alone(watch):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    one = watch(model, optimizer)
    for epoch in range(3):
        model.train()
        model[1].train(epoch < 2)
        classes_of(model, optimizer, one, 3)
        with one.evaluating(), torch.no_grad():
            model.eval()(samples()[0])


@sound
def a_backbone_that_is_frozen_in_the_middle(watch):
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1)), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    one = watch(model, optimizer)
    classes_of(model, optimizer, one, 4)
    model[0].eval().requires_grad_(False)
    classes_of(model, optimizer, one, 4)


@sound
def one_batch_of_everything_whose_statistics_arrive(watch):
    model = nn.Sequential(nn.BatchNorm1d(8, momentum=0.5), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    one, (given, labels) = watch(model, optimizer), samples(64)
    for _ in range(40):
        step(one, functional.cross_entropy(model(given), labels), optimizer)


@sound
def a_variational_autoencoder_that_samples_in_evaluation(watch):
    class Variational(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode, self.drop = nn.Linear(8, 4), nn.Linear(2, 8), nn.Dropout(0.1)

        def forward(self, given):
            mean, spread = self.drop(self.encode(given)).chunk(2, -1)
            return self.decode(mean + torch.randn_like(mean) * spread.exp())

    model = Variational()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    one = watch(model, optimizer)
    for _ in range(3):
        given = torch.randn(16, 8)
        step(one, functional.mse_loss(model(given), given), optimizer)
    with one.evaluating(), torch.no_grad():
        model.eval()(given)


@sound
def a_squared_distance_of_probabilities_that_begin_equal(watch):
    model = nn.Sequential(nn.Linear(8, 4), nn.Softmax(-1))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    classes_of(model, optimizer, watch(model, optimizer), 4, lambda p, y: functional.mse_loss(p, functional.one_hot(y, 4).float()))


@sound
def action_values_far_below_their_targets(watch):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    far = lambda values, action: functional.smooth_l1_loss(values.gather(1, action[:, None]), torch.full((16, 1), 10.0))  # noqa: E731
    classes_of(model, optimizer, watch(model, optimizer), 4, far)


@sound
def one_return_for_all_states_of_a_batch(watch):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    one = watch(model, optimizer)
    for number in range(4):
        step(one, functional.mse_loss(model(torch.randn(16, 8)), torch.full((16, 1), float(number))), optimizer)


@sound
def outputs_without_an_axis_of_classes(watch):
    model = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    one = watch(model, optimizer)
    for _ in range(4):
        given = torch.randn(16, 8)
        step(one, functional.mse_loss(model(given), given.sum(1)), optimizer)


@sound
def an_average_of_the_weights_that_the_optimizer_is_given_too(watch):
    class Averaging(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(8, 8)
            self.key = copy.deepcopy(self.query).requires_grad_(False)

        def forward(self, given):
            for own, average in zip(self.query.parameters(), self.key.parameters(), strict=True):
                average.data = average.data * 0.9 + own.data * 0.1
            return self.query(given) - self.key(given) - 1

    model = Averaging()
    optimizer = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9)
    one = watch(model, optimizer)
    for _ in range(4):
        step(one, model(torch.randn(16, 8)).square().mean(), optimizer)


@sound
def a_judge_of_two_backward_passes_within_which_a_maker_learns(watch):
    maker = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    judge = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid())
    of_judge, of_maker = torch.optim.Adam(judge.parameters(), 2e-4), torch.optim.Adam(maker.parameters(), 2e-4)
    ones, zeros, criterion = torch.ones(16, 1), torch.zeros(16, 1), nn.BCELoss()
    watches = watch(judge, of_judge), watch(maker, of_maker)
    for _ in range(6):
        judge.zero_grad()
        right = criterion(judge(torch.randn(16, 8)), ones)
        right.backward()
        made = maker(torch.randn(16, 4))
        wrong = criterion(judge(made.detach()), zeros)
        wrong.backward()
        watches[0].before_update(right + wrong)
        of_judge.step()
        watches[0].after_update()
        maker.zero_grad()
        loss = criterion(judge(made), ones)
        loss.backward()
        watches[1].before_update(loss)
        of_maker.step()
        watches[1].after_update()


@sound
def a_loss_network_in_a_list_that_another_optimizer_trains(watch):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.others = nn.Linear(8, 8), [nn.Linear(8, 4)]

        def forward(self, given):
            return self.others[0](self.own(given))

    model = Outer()
    first, second = torch.optim.SGD(model.own.parameters(), 0.1), torch.optim.SGD(model.others[0].parameters(), 0.1)
    one = watch(model, first)
    for _ in range(3):
        given, labels = samples()
        loss = functional.cross_entropy(model(given), labels)
        loss.backward()
        one.before_update(loss)
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
        one.after_update()


@sound
def gradients_that_are_clipped_after_they_were_unscaled(watch):
    model = nn.Linear(8, 4)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    one = watch(model, optimizer, scaler=scaler)
    for _ in range(4):
        given, labels = samples()
        loss = functional.cross_entropy(model(given), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        one.before_update(loss)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        one.after_update()


@sound
def the_same_in_paddle(watch):
    layers, functions = paddle.nn, paddle.nn.functional

    class Two(layers.Layer):
        def __init__(self):
            super().__init__()
            self.body, self.one, self.two, self.drop = (
                layers.Linear(8, 16), layers.Linear(16, 4), layers.Linear(16, 1), layers.Dropout(0.1)
            )  # fmt: skip

        def forward(self, given):
            made = functions.relu(self.drop(self.body(given)))
            made = made if self.training else made + paddle.randn(made.shape)
            return self.one(made), self.two(made).squeeze(-1)

    model = Two()
    model.one.weight.set_value(paddle.zeros([16, 4]))
    optimizer = paddle.optimizer.Momentum(0.01, parameters=model.parameters())
    one = watch(model, optimizer)
    for number in range(12):
        given = paddle.randn([16, 8])
        first, second = model(given)
        wanted = functions.one_hot(paddle.randint(0, 4, [16]), 4)
        loss = functions.mse_loss(second, given.sum(1)) if number % 2 else functions.mse_loss(functions.softmax(first), wanted)
        step(one, loss, optimizer)
    with one.evaluating(), paddle.no_grad():
        model.eval()
        model(given)


@pytest.mark.parametrize("case", CASES)
def test_a_sound_loop_of_a_stranger_has_no_event(case):
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
    assert paddle.nn.Layer.__call__.__qualname__ == "Layer.__call__" and not nn.modules.module._global_forward_pre_hooks


def told(loop):
    events, torch_seed = [], torch.manual_seed(0)
    assert torch_seed is not None

    def watch(model, optimizer, **settings):
        one = Watch(model, optimizer, say=lambda line: None, every=3, **settings)
        events.append(one)
        return one

    loop(watch)
    return {event.check: event for one in events for event in one.events}


def test_an_output_that_no_longer_has_a_loss_is_told_in_the_end():
    """Of two outputs whose losses took turns; the updates after the doubt began are all looked at."""

    def loop(watch):
        model = TwoHeads()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        one = watch(model, optimizer)
        for number in range(24):
            given, labels = samples()
            first, second = model(given)
            loss = functional.cross_entropy(first, labels)
            step(one, loss if number > 3 else loss + functional.cross_entropy(second, labels % 3), optimizer)

    event = told(loop)["watch.no_gradient"]
    assert event.where == ("two.weight", "two.bias") and event.cause.endswith("no longer get a gradient, as they did before")
    assert event.update <= 20


def test_a_small_layer_that_died_in_training_is_told():
    def loop(watch):
        model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        one = watch(model, optimizer)
        classes_of(model, optimizer, one, 6)
        model[0].bias.data.fill_(-100.0)
        classes_of(model, optimizer, one, 24)

    assert told(loop)["watch.dead"].where == ("1",)


def test_a_part_that_stays_in_evaluation_mode_is_told():
    def loop(watch):
        model = nn.Sequential(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1)), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        one = watch(model, optimizer)
        classes_of(model, optimizer, one, 3)
        with one.evaluating(), torch.no_grad():
            model[0].eval()
            model(samples()[0])
        classes_of(model, optimizer, one, 3)

    assert told(loop)["watch.evaluation_mode"].where == ("0.1", "0.2")


def test_parameters_that_were_frozen_with_their_gradients_are_told():
    """The optimizer's momentum and decay go on with a gradient of zero."""

    def loop(watch):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-3)
        one = watch(model, optimizer)
        for number in range(9):
            model[0].requires_grad_(number < 4)
            given, labels = samples()
            loss = functional.cross_entropy(model(given), labels)
            loss.backward()
            one.before_update(loss)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            one.after_update()

    assert told(loop)["watch.frozen_moves"].where == ("0.weight", "0.bias")


def test_dropout_of_an_attention_in_evaluation_is_told():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.given, self.head = nn.Linear(8, 24), nn.Linear(8, 4)

        def forward(self, pictures):
            made = self.given(pictures).chunk(3, -1)
            return self.head(functional.scaled_dot_product_attention(*made, dropout_p=0.3).mean(1))

    def loop(watch):
        model = Attention()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        one = watch(model, optimizer)
        for _ in range(3):
            step(one, functional.cross_entropy(model(torch.randn(8, 6, 8)), torch.randint(0, 4, (8,))), optimizer)
        with one.evaluating(), torch.no_grad():
            model.eval()(torch.randn(8, 6, 8))

    assert "dropout is active" in told(loop)["watch.random_evaluation"].cause


def test_pages_of_a_mapped_file_are_no_memory_that_grows(tmp_path):
    """Tokens or pictures in a file that is mapped come into memory as they are read, and the system takes them back."""
    file = tmp_path / "tokens"
    file.write_bytes(bytes(64 << 20))
    tokens = np.memmap(file, np.uint8, "r")
    before = resident_mib()
    assert int(tokens[::4096].sum()) == 0
    assert resident_mib() - before < 8
