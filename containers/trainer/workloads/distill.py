"""Distillation, from a forum question: a light frozen teacher beside a larger student that learns.

Can the CPU run the teacher while the GPU trains the student? The student is resnet-56 unchanged, except for its loss
(recipe.py); the teacher is the network of cifar10-keras. The cost counts only the student's work: the teacher's,
28,878,848 operations per example, is done elsewhere, or once, or not at all.
"""
from __future__ import absolute_import, division, print_function

from ..recipe import momentum, recipe
from . import resnet_56

SUMMARY = "Distillation: resnet-56 taught by the network of cifar10-keras, on CPU or GPU"
WHAT = "Distillation: where should the teacher run?"
PLACE = 8
SOURCE = "a question on a forum: In knowledge distillation, how to run the student and the teacher models in parallel?"
DATA = "cifar10"
UNIT = "images"
STEPS = 3910            # ten epochs of 391
BATCH = 128
INPUT = (32, 32, 3)
PARAMETERS = 853018
MACS = 125485696
FLOPS = 752029440
FRAMEWORKS = ("pytorch", "tf1", "tf2")
LEAST_BATCH = 2         # batch norm has no variance of a single example
TEACHER = "cifar10-keras"
VARY = "teacher=none,together,before,ahead,kept"

NETWORK = resnet_56.NETWORK
RECIPE = recipe(momentum(0.9), rate=0.01, loss="distill")

load, load_test, plain, source = resnet_56.load, resnet_56.load_test, resnet_56.plain, resnet_56.source
