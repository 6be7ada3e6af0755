# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Why, and how much
#
# A compiler that fuses should be able to say what it fused, why it left the rest apart, what that
# saved, and what limits each kernel. This tutorial asks `tvm_fusion` these questions about one
# transformer block:
#
# 1. what was saved;
# 2. why two operators are in one kernel, and where what lies between them lives;
# 3. why two others are not, and what would have to be otherwise;
# 4. what a limit changes, and how two builds are compared;
# 5. the same as data, as a page and as a graph.
#
# You need no GPU. [First fusion](01_first_fusion.ipynb) explains what fusion is.

# %%
import tempfile
from collections import Counter
from pathlib import Path

import tvm_fusion as tf
from tvm_fusion.workloads import WORKLOADS

# %% [markdown]
# ## 1. What was saved
#
# `tf.explain` fuses and schedules a module for a GPU and reports on that very build. The block is
# one of Llama's: norms, an attention with rotary embedding, and a gated feed-forward network.

# %%
block = WORKLOADS["llama_block"]()
report = tf.explain(block, "nvidia/nvidia-a100")

for way in ("unfused", "ours"):
    totals = report.header.totals[way]
    print(f"{way:8} {totals.kernels:3} kernels, {totals.bytes / 1e6:6.2f} MB of global memory")

# %% [markdown]
# Bytes are modelled: each kernel moves every tensor that it touches once. The report says so, with
# everything else that its figures rest on:

# %%
print("\n".join(report.assumptions))

# %% [markdown]
# Which groups save most? Every operator is in exactly one group, also the ones that stayed by
# themselves, and what the groups save adds up to the difference above.

# %%
most = sorted(report.groups, key=lambda group: group.bytes_saved, reverse=True)
for group in most[:4]:
    print(f"{group.bytes_saved / 1e6:5.2f} MB saved by {len(group.ops):2} ops: {group.name}")

totals = report.header.totals
assert sum(group.bytes_saved for group in report.groups) == (
    totals["unfused"].bytes - totals["ours"].bytes
)

# %% [markdown]
# ## 2. Why are these two in one kernel?
#
# Ask with the names of operators, or of the PrimFuncs that they call.

# %%
print(report.why("mul1", "mean"))

# %% [markdown]
# `mul1` squares the input of the norm, and `mean` adds up the squares of a row. The square is never
# stored: each thread computes it where the sum needs it. `group` shows the whole kernel. Each
# result has a place: `inline` is evaluated where it is read, `scalar` is one value a row in a
# register, `register` stays in registers, `global` is written.

# %%
print(report.group("mean"))

# %% [markdown]
# Where a CUDA compiler is installed (`pip install 'tvm-fusion[cuda]'`), registers and spills are
# what that compiler says of this kernel; else they are marked as estimates. The source is there as
# well:

# %%
print(report.group("mean").cuda[:600])

# %% [markdown]
# ## 3. Why are those two not?

# %%
print(report.why("add3", "softmax"))

# %% [markdown]
# `add3` is behind the product of queries and keys. TVM's kernels of products make their result tile
# by tile, and a softmax needs whole rows. Nothing that one could set would change that in this
# version, and the answer does not pretend otherwise. The next one is different:

# %%
print(report.why("add4", "mul9"))

# %% [markdown]
# Two operators that pass no tensor to each other are answered with what lies between them.

# %%
print(report.why("softmax", "silu"))

# %% [markdown]
# There is one reason for each pair, and each kind of reason has a
# [page with examples](../docs/reasons.md). How often is each given?

# %%
print(Counter(edge.reason.code for edge in report.edges))
print(Counter(pair.reason.code for pair in report.siblings), "for readers of one tensor")

# %% [markdown]
# ## 4. What does a limit change?
#
# Allow groups of at most four operators. Pairs that this refuses say so, and name the value at
# which the check would pass.

# %%
small = tf.explain(block, "nvidia/nvidia-a100", limits=tf.Limits(max_group_size=4))
refused = [edge for edge in small.edges if edge.reason.code == "max_group_size"]
edge = refused[0]
print(small.why(edge.producer, edge.consumer))
print()
print(edge.reason.limits_needed)

# %% [markdown]
# `diff` compares two builds: settings, totals, decisions, groups, kernels.

# %%
changes = report.diff(small)
for change in (*changes.settings, *changes.totals):
    print(f"{change.what}: {change.old} -> {change.new}")
print(f"{len(changes.groups_lost)} groups are gone, {len(changes.groups_gained)} are new")
for change in changes.pairs[:3]:
    print(f"{change.what}: {change.old} -> {change.new}")

# %% [markdown]
# ## 5. Data, page, graph
#
# The report is plain data with a JSON layout that has a version. It can be kept beside a model and
# compared with the next build.

# %%
folder = Path(tempfile.mkdtemp())
report.save(folder / "report.json")
assert tf.FusionReport.load(folder / "report.json") == report

page = report.to_html()
(folder / "report.html").write_text(page)
print(f"a page of {len(page) / 1e6:.1f} MB that needs nothing else")

# %% [markdown]
# Open it in a browser: the graph before and after fusion, refused edges dashed, and a click on one
# says why. Small graphs fit into a Markdown file as a Mermaid flowchart:

# %%
norm = tf.explain(WORKLOADS["softmax_chain"](), "nvidia/nvidia-a100")
print(norm.to_mermaid())

# %% [markdown]
# On the command line it is the same:
#
#     tvm-fusion explain llama_block --why add4 mul9
#     tvm-fusion explain llama_block --html report.html --json report.json
#     tvm-fusion explain report.json --group mean
#     tvm-fusion explain llama_block --max-depth 4 --diff report.json
#
# To see decisions as they are made, turn the logger on:
#
#     import logging
#     logging.basicConfig(level=logging.DEBUG)
