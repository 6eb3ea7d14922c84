"""Every tolerance of the steps, in one table, with its reason.

Float32 results are compared with the float64 truth: the port's error may be at most ``FLOOR_FACTOR`` times the measured
noise floor of the quantity itself, which is the larger of the reference's own float32 error and the reference's change
when each weight moves by one unit in the last place.

Float64 results in exact mode are compared with each other.
"""

from __future__ import annotations

# How many times the reference's own float32 error the port's may be. A correct port stays below 5 (20 seeds, both
# models, four widths); PITFALLS' smallest fault, a BatchNorm eps of 1e-5, is beyond 1000.
FLOOR_FACTOR = 10.0

# Relative L2 floor below which no float32 result can be asked to be: a few units in the last place, for quantities of
# which the reference happens to be exact.
BASE_FLOOR_32 = 4 * 2.0**-24

# The same for float64 results after one pass.
BASE_FLOOR_64 = 4 * 2.0**-53

# Relative L2 agreement of the two sides in exact mode. A correct port gives 2e-14 or better.
EXACT_RTOL = 1e-12

# In a very deep network rounding grows from layer to layer (torchvision's own resnet152, in training mode, moves by 1.5e-12
# when all it is given moves by one ulp). A forward value that misses EXACT_RTOL may differ by TRAJECTORY_FACTOR of what
# one-ulp changes do to it, and never by more than this: of a network that moves further, exact mode can prove nothing.
MOST_EXACT_RTOL = 1e-10

# Over several updates rounding grows at the network's own pace: exact mode must stay within this many times the
# reference's change when everything it is given moves by one float64 ulp, the largest of several draws. All gradients
# together, and all weights and statistics together, are held to it, or to SUMMATION_64, or below EXACT_RTOL to SUM_FACTOR (a point
# cloud whose points take part in many neighbourhoods: one-ulp changes did 9.6e-15, the two frameworks differed by 2.2e-13); one
# tensor may also lie within EXACT_RTOL, since Paddle adds up a reduction in another order than torch, which they do not imitate.
TRAJECTORY_FACTOR = 10.0

# What one-ulp changes may do to all gradients together, or to all weights and statistics: where they do more, whatever the port
# computes would pass, and the run is said to be not comparable. (Sound runs of ten updates: up to 1e-11.)
MOST_TRAJECTORY = 1e-6

# Where one-ulp changes of an input move what the reference gives by more than that, the input stands on an edge (equal scores that
# are sorted, a box without area). So far beside it (relative, standard deviation) is no edge, and rounding is small again.
BESIDE = 1e-5

# How far the reference may lie from itself with the same weights and inputs before it is taken to draw numbers of its own: threads
# add up in float32 in another order.
AGAIN_32, AGAIN_64 = 1e-4, 1e-9

# Below this, relative L2, a difference of all gradients together (or all weights and statistics) is the order of summation:
# 1e5 products added up in another order differ by sqrt(1e5) * 2**-53 = 3.5e-14, however little one-ulp changes move the
# sum. Sound networks without normalisation gave 2.2e-14 where one-ulp changes gave 5.6e-16.
# Behind a global mean all places of a channel have one gradient, and n equal numbers added one after another err by up to n times
# SUMMED_64 (1.3e-13 was measured for two maps of 95 x 113 places): that, too, is allowed, as far as EXACT_RTOL.
SUMMATION_64 = 1e-13
SUMMED_64 = 2.0**-54

# The gradient of a vector (a bias) is one sum over samples and places. torch adds pairwise; Paddle's CPU kernel of a convolution's
# bias adds one number after another, and n equal ones, as behind a global mean, then err by up to n * 2**-25 (measured: 9.6e-6
# for 512). One-ulp changes of the reference do not imitate that. Where exact mode agrees, float32 may err by this, which is
# 8,192 places; a tensor of float16's precision is caught by the gradients of the matrices, which have no such leeway.
SUMMATION_32 = 2.0**-12

# Where the terms of such a sum nearly cancel, one-ulp changes move it by more than an ulp of it, and the order of 1,024 terms by
# up to sqrt(1024) times that, in float32 as in float64. Weights of a fusion that are divided by their own sum were measured:
# one-ulp changes did 1.5e-11, the two frameworks differed by 8.3e-11 in float64, and in float32 by 7e-2 and 1.5e-3 from the
# truth. Beyond MOST_SUM_32 and MOST_SUM_64 nothing is allowed. The latter was MOST_EXACT_RTOL, less than what TRAJECTORY_FACTOR
# gives: a gradient of one number failed at 2.9e-10, 14 times the farthest of three one-ulp changes (2.1e-11), and the search, which
# allows SUM_FACTOR, found no mistake. In one case of 75 all three move a single number by less than 0.3 of their deviation.
SUM_FACTOR = 32.0
MOST_SUM_32 = 0.1
MOST_SUM_64 = 1e-9

# Any output may be a sum, too: of the places of a map (global pooling, statistics), along an axis (mean, cumsum, a matrix of many
# columns). One framework adds pairwise, the other one number after another: n roundings, each of up to half a unit of a sum that
# grows, do sqrt(n) times this where they fall either way (Higham, Accuracy and Stability of Numerical Algorithms, chapter 4).
# Paddle's CPU kernels were measured at 0.1 to 0.5 of it (means of 3,136 to 1,048,576 values, batch statistics, cumsum of 100,000),
# torch's at a hundredth. Never more than SUMMATION_32 is allowed; a value that went through float16 is off by 2e-4, and its mean
# over 49,284 places by 3e-6, which this does not tell from rounding (in bfloat16: 2.4e-5, which it does).
SUMMED_32 = 2.0**-24

# One kink input on the other side of its kink changes all float32 gradients together by up to this relative L2 in a
# correct port (measured: 1e-3), a single small tensor by 0.1 and more. It widens the float32 floor only where flips were
# counted; exact mode judges each tensor there. More flips than this share of the kink inputs (and more than 3) are not
# rounding: a correct port has 1 in a million.
FLIP_ALLOWANCE = 5e-3
FLIP_SHARE = 2e-5

# A measured quantity is noise where one-ulp changes move the truth by this share of itself, e.g. the gradients of the
# projection BatchNorms' biases, which are zero in exact arithmetic. Its own norm then says nothing: it may lie within SUMMATION_64
# (in float32 FLOOR_FACTOR * BASE_FLOOR_32) of the norm of what it is part of. That is for a gradient all gradients, for a running
# statistic its layer's statistics, for a module's output the median size of the outputs. Under fresh weights the means behind a
# projection were 1e-17 beside variances of 1, and the two sides differed by as much; a mean that is off by 1e-9 still fails.
NOISE_SHARE = 1e-3

# The same for what is computed in bfloat16 or float16: error, gain and shift (alignment.low_precision) may be this many times
# the largest that several draws of random rounding give the reference. LOW_BASE of the spacing of one result's digits is the
# least error that is asked for, and beyond LOW_NOISE of it nothing of a quantity is left to judge.
LOW_FACTOR = 4.0
LOW_BASE = 0.25
LOW_NOISE = 0.5

# A training curve may part from the reference's by this many times what the reference parts from itself, over several draws
# of one-ulp changes, by the same iteration. A correct port was seen at up to 4.
CURVE_FACTOR = 10.0

# In exact mode the losses of the first so many iterations agree to this, relatively.
EXACT_CURVE = (20, 1e-8)

# Final accuracies are equal where their mean difference over seeds is within this margin (the guide's 0.15 points), and each end of
# the margin is excluded at this level: so often is a port called equal whose accuracy is off by the margin, or different within it.
ACCURACY_DIFFERENCE = 0.0015
EQUIVALENCE_LEVEL = 0.05

# How often step 6 may fail a sound port for its final accuracies: three seeds at EQUIVALENCE_LEVEL would fail one in twenty to
# thirty. Simulated (200,000 experiments of three seeds without a difference, each at a correlation of 0, 0.5 and 0.9): it fails
# 0.96, 0.63 and 0.51 % (the sum of both ranges, the former rule: 1.2, 0.4 and 0.1 %), and finds a loss of six standard deviations
# of one run in 84, 88 and 99 %. What lies between is "undecided".
ACCURACY_FALSE_FAILURE = 0.01

# What is computed here once more from a side's own float32 numbers (moving averages) agrees to this, relative L2: a few
# roundings of float32. Mistakes are of the size of an update.
RECOMPUTED_32 = 2.0**-20
# Fresh weights of both sides are samples of one distribution: the probability that a correct port fails in any tensor. Each
# of the tests (three a random tensor) gets an equal share of it, and its bound from a theorem that holds for
# every distribution and number of values (alignment.initialisers). Seeds are fixed: a port that passes once passes always.
INITIALISATION_FALSE_ALARM = 1e-6
# Ranks in exact mode against the reference in one process, relative L2: for what each rank computes by itself; for what runs
# through a port's own synchronised BatchNorm, whose eps no kernel rounds to float32 as torch's does; and for moving averages,
# which are kept in float32. A mistake of synchronisation is beyond 1e-3.
RANKS_RTOL = 1e-8
RANKS_SYNC_RTOL = 1e-5
RANKS_AVERAGE_RTOL = 1e-5

# A hypothesis about ranks explains a tensor where it comes as close as this, relative L2.
RANKS_EXPLAINED = 1e-5
# What rounding leaves of a tensor, relative to the largest tensor, where hypotheses about ranks are concerned.
RANKS_NOISE = 1e-13

# The reproduction guide's absolute thresholds, reported beside the verdict.
GUIDE_THRESHOLDS = {"forward": 1e-5, "data": 0.0, "metric": 0.0, "loss": 1e-5, "backward": 1e-5, "train": 0.0015}

# No vacuous check: with calibrated weights the logits of the photographs must have a standard deviation within these bounds,
# and this much of it between the pictures. (Freshly initialised ones have 1e-10.)
LOGITS_STD = (0.5, 5.0)
LOGITS_STD_BETWEEN = 0.05

# The same for weights that somebody gives: a trained network's logits are larger, and some outputs are small.
GIVEN_LOGITS_STD = (0.01, 1000.0)
GIVEN_LOGITS_STD_BETWEEN = 1e-4

# Random parameters are compared by their distributions: each row may fail a right sample by chance with at most this probability,
# a bound that holds for every sample size (alignment/distributions.py). Step 2 has fewer than DRAWS_ROWS such rows (a test
# counts them), so a whole step raises a false alarm with less than 1e-6. Seeds are fixed: a run that passes passes always.
DRAWS_FALSE_ALARM = 1e-9
DRAWS_ROWS = 1000

# Magnitudes of augmentation are float32, and an equidistant table may be rounded in another order: two units in the last place.
# What a magnitude does is compared on pictures, to the last bit.
MAGNITUDE_RTOL = 2.4e-7

# `compare` of two record files: relative L2 of floating arrays. Records are float32; a port's own rounding stays below it.
RECORDS_RTOL = 1e-5

# Dumps that other tools wrote, relative L2 by the type that the tensor had: there is no float64 truth beside them. What a module
# returns may also differ by FLOOR_FACTOR of what agreed before it, since rounding grows from layer to layer, but never by more
# than DUMPED_MOST. A gradient that is zero but for rounding is judged as if it were DUMPED_LEAST of the largest.
DUMPED_RTOL = {"float64": 1e-10, "float32": RECORDS_RTOL, "float16": 4e-3, "bfloat16": 3e-2}
DUMPED_MOST = 1e-3
DUMPED_LEAST = 1e-3

# Of a value's norm: rounding that moves a value so far leaves nothing of MOST_EXACT_RTOL anyway.
FLIPPED = 1e-8

# What a search in exact mode takes for the same: arrays that are the same numbers, or what runs of one network may differ by.
# Correct ports agree to 1e-13, written by hand to 1e-10; a mistake of a setting is beyond 1e-6.
SAME = 1e-9

# Explanations recompute in float64 what a step measured. The same numbers agree to this, relative L2; a hypothesis explains a
# value where it comes as close as the second, and as the third where the port computed in float32.
LOSS_RTOL = 1e-9
LOSS_EXPLAINED = 1e-6
LOSS_EXPLAINED_32 = 1e-4

# A loss is one number, which can be right by luck: nothing below a few dozen units of float32 is a mistake.
LOSS_32_RTOL = 3e-6

# Weights after few updates in float64, from the same gradients; learning rates, which no arithmetic of more than a few steps makes;
# and whole runs, in which rounding grows.
UPDATE_RTOL = 1e-9
RATE_RTOL = EXACT_RTOL * 1e3
RUN_RTOL = 1e-8

# The first losses of a run in float32, where the reference's own curves leave less: a mistake of float32 alone is larger.
RUN_LOSS_32 = 1e-5

# Elements of a run's tensors that are smaller are judged as if they were that large: some biases and means are zero but for
# rounding.
RUN_LEAST = 1e-6

# A fit of the port's moving average by the states that it was given leaves no more than float32's rounding.
AVERAGE_FITTED = 1e-5

# On ranks a tensor's difference is relative to its own size, or to this share of the largest tensor's.
RANKS_LEAST = 1e-3

# Operations between layers, each element in float64: those of a right port agree to 1e-13, hand-written norms to 1e-10. The
# second is times the median magnitude of an array.
OPERATION_RTOL = 1e-8
OPERATION_ATOL = 1e-10

# Two networks on random weights in float32, relative L2. Within the first, two computations are shown to be one. Below the second
# nothing is left to be turned: a matrix of small influence may lie the wrong way though all agree. Above the third a module
# computes something else; below it a wrong constant may be all, too small for the whole model.
PAIRED_AGREE = 1e-3
PAIRED_CLOSE = 2e-5
PAIRED_APART = 1e-2

# Two weights whose channels point in other directions are others, in sine: rounding to bfloat16 turns a channel by 2e-3, and two
# that are drawn apart stand at right angles.
WEIGHTS_APART = 1e-2

# An eps that is rounded on one side alone is seen where outputs part by more than the order of summation explains.
EPS_SUMMATION = 1e-14

# Relative L2 in float64 of a layer whose kernel rounds a constant to float32: up to 5e-7 was seen.
FLOAT32_CONSTANT = 1e-6

# A difference above this is a mistake beside which tables that are one rounding of float32 apart explain nothing: what they make of
# a module's output is below 1e-5.
BESIDE_ROUNDING = 1e-4

# Gradients of micro-batches in float64, whose kernels round constants to float32; a tensor that is zero but for rounding is judged
# as if it were this share of the largest.
ACCUMULATION_RTOL = 1e-7
ACCUMULATION_LEAST = 1e-6

# One update from the same weights and gradients, of the move, with what the weights' own rounding adds; and an optimizer's formula
# against the reference's update.
MOVE_RTOL = UPDATE_RTOL * 100
MOVE_LEAST = 1e-15
FORMULA_RTOL = 1e-6
FORMULA_LEAST = 1e-13

# Pictures of one transform are made by the same code on both sides, or by another in float32; a line that is fitted to levels has
# that rounding in both of its coefficients.
PICTURE_RTOL = 1e-9
PICTURE_FITTED = 1e-5

# A value of shared code against a formula, a table or another library: the same arithmetic in another order, in float64.
WITNESS_RTOL = 1e-9

# Of the hypotheses. A mistake that is computed meets the port to CLOSE, since kernels' float32 constants stay below it; a factor or
# a share that is no farther from the right one is the right one. TINY keeps a division by a norm of zero finite and weighs nothing.
CLOSE = 1e-6
TINY = 1e-300

# A score that no softmax shall see is set to the lowest number of float32, bfloat16 or float64: no measure of what is beside it.
LOWEST = (-3.4028234663852886e38, -3.3895313892515355e38, -1.7976931348623157e308)

# Some set it to -1e9, others to -inf: no score that means something is as low.
MASKING = -1e8

# A slope or share is read off where what it multiplies is no smaller than this (for shares: of the largest), else rounding decides.
READABLE = 1e-3

# Mean and standard deviation that are read off 8-bit pictures: rounding to levels moves them by up to this, relatively.
PICTURE_READ = 1e-3

# A gradient of which the floor is not known may be off by this share of the largest gradient, times what is allowed of that one.
GRADIENT_LEAST = 1e-3

# Half precision keeps 8 bits (bfloat16) or 11 (float16): a value moves by up to 2e-3 or 2.4e-4, and less after an average. What is
# off by less than the first or more than the last was not rounded so. A hypothesis about it meets the port as closely as what is
# computed behind the rounding moves it: in one operation, in the module's input, in what a child gives.
HALF_LEAST_OUTPUT = 1e-6
HALF_LEAST = 1e-5
HALF_MOST = 3e-2
HALF_OPERATION = 3e-4
HALF_INPUT = 1e-3
HALF_CHILD = 1e-2
HALF_ROUNDED = {"bfloat16": 3e-4, "float16": 3e-5}

# Rounding of a weight in float64, which every update of it has, relative to the weight.
WEIGHT_ROUNDING = 1e-14

# A tensor of an exported graph has the value of a module's output where the two are as near as this, relative L2, with right values
# going in: weights that the exporter folded in float32 leave 1e-6, and no two modules' outputs are so near by chance. What is
# between such tensors is judged by itself.
EXPORTED_SAME = 1e-5

# Quantised graphs. Levels of a channel belong to a tensor of the other side where they correlate by this; levels of 8 bits do by
# 0.999 and more, other tensors' by chance.
QUANTISED_ALIKE = 0.9

# A weight lies within half a step of its level; quantisers that choose between the two nearest levels (AdaRound) within one. Values
# at the ends of the range and activations beyond it may lose this share of the norm (20 dB), and this share of the values, by a
# calibration on other pictures of the same kind; a percentile of 99.9 cuts off a tenth of that share.
QUANTISED_HALF = 0.5 + 1e-3
QUANTISED_STEP = 1.0 + 1e-3
QUANTISED_LOST = 0.1
QUANTISED_SATURATED = 0.01

# Decibels that one scale for all channels costs: below it the channels need no scale of their own. An activation's range is
# another's where it is this many times as wide as its values need, and the other's own values need it.
QUANTISED_COST = 3.0
QUANTISED_WIDE = 4.0

# Scales are float32, of one product: they agree to the first. A scale that is read off levels is off by the second, and a
# hypothesis that predicts levels may miss those that lie between two.
QUANTISED_SCALE = 1e-4
QUANTISED_READ = 0.02

# Two passes in float32 between which no further event happens differ by rounding alone, relative L2. A probability is looked for as
# exactly as PROBABILITY, and two that differ by less than PROBABILITIES_APART are one.
NOTHING_ELSE = 1e-5
PROBABILITY = 2.0**-12
PROBABILITIES_APART = 2.0**-10
