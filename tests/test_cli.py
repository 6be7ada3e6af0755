"""Does the command line do what its options say, and end with one line where it cannot?"""

import builtins
import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
import tvm.script
from onnx import TensorProto, helper

from tvm_fusion import FusionReport
from tvm_fusion.analysis.traffic import total
from tvm_fusion.cli import demo, main
from tvm_fusion.cli.models import load_model
from tvm_fusion.codegen import parse_kernels

MODELS = """
from tvm.script import ir as I, relax as R

@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 16), "float32")):
        with R.dataflow():
            lv0 = R.exp(x)
            lv1 = R.add(lv0, R.const(1.0, "float32"))
            lv2 = R.tanh(lv1)
            gv = R.sum(lv2, axis=-1)
            R.output(gv)
        return gv

number = 3
"""


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return f"{path}:Chain"


def save_onnx(path, nodes, shape, result, weights=()):
    """A model with input x and output y."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, result)
    graph = helper.make_graph(nodes, "graph", [x], [y], initializer=list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    onnx.save(model, path)
    return str(path)


@pytest.fixture
def computed_shape(tmp_path):
    """Flattens with a shape that it computes from the input's: Shape, Gather, Concat, Reshape."""
    weights = [
        helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
        helper.make_tensor("rest", TensorProto.INT64, [1], [-1]),
        helper.make_tensor("w", TensorProto.FLOAT, [32, 4], np.linspace(-1, 1, 128)),
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["flat_shape"], axis=0),
        helper.make_node("Reshape", ["x", "flat_shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["product"]),
        helper.make_node("Tanh", ["product"], ["y"]),
    ]
    return save_onnx(tmp_path / "computed.onnx", nodes, ["batch", 8, 4], ["batch", 4], weights)


def run(capsys, *argv):
    """Exit status, stdout, and the lines of ours on stderr (TVM logs there too)."""
    try:
        status = main([str(arg) for arg in argv])
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    return status, captured.out, [s for s in captured.err.splitlines() if "tvm-fusion" in s]


def fails(capsys, *argv):
    """The one line that a command ends with."""
    status, out, lines = run(capsys, *argv)
    assert status == 1
    assert out == ""
    assert len(lines) == 1
    return lines[0]


def report_of(capsys, tmp_path, *argv):
    file = tmp_path / "deep" / "report.json"
    status, _, errors = run(capsys, "compile", *argv, "--json", file)
    assert (status, errors) == (0, [])
    return FusionReport.load(file)


def fused_groups(report):
    return [group for group in report.groups if group.kind == "fused"]


def test_compile_writes_what_it_says(capsys, tmp_path, chain):
    out = tmp_path / "out"
    status, text, errors = run(capsys, "compile", chain, "--assume", "n=64", "--out", out)
    assert (status, errors) == (0, [])
    assert "unfused" in text
    assert "Groups: 1" in text
    report = FusionReport.load(out / "report.json")
    totals = report.header.totals
    assert totals["stock"] is None
    assert totals["ours"].kernels_other == 1
    kernels = parse_kernels((out / "kernels.cu").read_text())
    assert [kernel.name for kernel in kernels] == [f"{report.groups[0].kernel}_kernel"]
    fused = tvm.script.from_source((out / "fused.py").read_text())
    assert total(fused, {"n": 64}) == totals["ours"]


def test_compile_takes_a_workload_and_compares_it(capsys, tmp_path):
    header = report_of(capsys, tmp_path, "softmax_chain", "--compare-stock").header
    assert header.target == "nvidia/nvidia-a100"
    assert header.totals["stock"].kernels_other == 2
    assert header.totals["ours"].kernels_other == 1


def test_explain_writes_every_rendering_and_answers_from_the_file(capsys, tmp_path):
    files = {
        option: tmp_path / "deep" / f"report.{ending}"
        for option, ending in (
            ("--json", "json"),
            ("--html", "html"),
            ("--graphviz", "dot"),
            ("--mermaid", "mmd"),
            ("--model-explorer", "nodes.json"),
            ("--chrome-trace", "trace.json"),
        )
    }
    options = [text for pair in files.items() for text in pair]
    status, out, errors = run(capsys, "explain", "softmax_chain", "--compare-stock", *options)
    assert (status, errors) == (0, [])
    assert "Groups: 1" in out
    assert "stock" in out
    report = FusionReport.load(files["--json"])
    assert files["--html"].read_text() == report.to_html()
    assert files["--graphviz"].read_text() == report.to_graphviz()
    assert files["--mermaid"].read_text() == report.to_mermaid()
    assert json.loads(files["--model-explorer"].read_text()) == report.to_model_explorer()
    assert json.loads(files["--chrome-trace"].read_text()) == report.to_chrome_trace()

    edge = report.edges[0]
    pair = (edge.producer, edge.consumer)
    status, out, errors = run(capsys, "explain", files["--json"], "--why", *pair)
    assert (status, out.strip(), errors) == (0, report.why(*pair), [])
    status, out, _ = run(capsys, "explain", files["--json"], "--group", edge.producer)
    assert status == 0
    assert "T.prim_func" in out
    assert "__global__" in out
    old = ["--diff", files["--json"]]
    assert run(capsys, "explain", files["--json"], *old)[1] == "nothing changed\n"
    status, out, _ = run(capsys, "explain", "softmax_chain", "--max-depth", "2", *old)
    assert status == 0
    assert "Limits.max_depth: None -> 2" in out

    assert "try one of" in fails(capsys, "explain", files["--json"], "--why", "none", "exp")
    assert "choose another path" in fails(capsys, "explain", tmp_path / "none.json")
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"schema": 1}')
    assert "this version of tvm_fusion reads 3" in fails(capsys, "explain", foreign)
    assert "reads 3" in fails(capsys, "explain", "softmax_chain", "--diff", foreign)


@pytest.mark.parametrize(
    ("options", "ops"),
    [
        ([], [4]),
        (["--max-depth", "2"], [2, 2]),
        (["--no-fuse", "tir_tanh"], [2]),
        (["--no-fuse", "lv1", "--no-fuse", "lv2"], []),
        (["--policy", "single_chain", "--shared-memory", "16"], [3]),
        (["--policy", "single_chain", "--shared-memory", "opt-in"], [4]),
        (["--target", "nvidia/nvidia-h100"], [4]),
    ],
)
def test_options_act(capsys, tmp_path, chain, options, ops):
    report = report_of(capsys, tmp_path, chain, "--assume", "n=64", *options)
    assert [len(group.ops) for group in fused_groups(report)] == ops
    named = dict(zip(options[::2], options[1::2], strict=True))
    assert report.header.target == named.get("--target", "nvidia/nvidia-a100")
    assert report.header.policy == named.get("--policy", "stitch")
    assert report.header.limits["max_depth"] == (2 if "--max-depth" in named else None)


def test_onnx_with_a_computed_shape(capsys, tmp_path, computed_shape):
    report = report_of(capsys, tmp_path, computed_shape, "--input", "x=2x8x4")
    assert report.header.totals["ours"].kernels_heavy == 1
    assert report.header.totals["ours"].kernels_other == 0
    mod = load_model(computed_shape, {"x": (2, 8, 4)})
    assert [int(extent) for extent in mod["main"].ret_ty.shape.values] == [2, 4]


def test_onnx_errors_name_the_remedy(capsys, tmp_path, computed_shape):
    line = fails(capsys, "compile", computed_shape)
    assert "'x'" in line
    assert "batchx8x4" in line
    assert "--input x=1x8x4" in line
    assert "give --input for x" in fails(capsys, "compile", computed_shape, "--input", "z=1x2")
    assert "3 extents" in fails(capsys, "compile", computed_shape, "--input", "x=1x2")
    line = fails(capsys, "compile", computed_shape, "--input", "x=1x3x3")
    assert "--input" in line
    assert "check the path" in fails(capsys, "compile", tmp_path / "none.onnx")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    assert "export it again" in fails(capsys, "compile", broken)
    unknown = [helper.make_node("Det", ["x"], ["y"])]
    line = fails(capsys, "compile", save_onnx(tmp_path / "det.onnx", unknown, [3, 3], []))
    assert "Det" in line
    assert "export it with other operators" in line


@pytest.mark.parametrize("package", ["onnx", "onnxsim"])
def test_missing_onnx_packages_name_the_extra(capsys, monkeypatch, computed_shape, package):
    real = builtins.__import__

    def fake(name, *args, **kwargs):
        if name == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fake)
    line = fails(capsys, "compile", computed_shape)
    assert package in line
    assert "pip install 'tvm-fusion[onnx]'" in line


def test_python_errors_name_the_remedy(capsys, tmp_path, chain):
    path = chain.rpartition(":")[0]
    assert "choose one of Chain" in fails(capsys, "compile", f"{path}:None")
    assert "type int): choose one of Chain" in fails(capsys, "compile", f"{path}:number")
    assert "check the path" in fails(capsys, "compile", f"{tmp_path}/none.py:Chain")
    assert "leave it out" in fails(capsys, "compile", chain, "--input", "x=1x16")
    bad = tmp_path / "bad.py"
    bad.write_text("raise RuntimeError('first\\nlast')")
    assert "repair it: RuntimeError: last" in fails(capsys, "compile", f"{bad}:A")
    bad.write_text(MODELS.replace("R.tanh(lv1)", "R.tanh(lv7)"))
    assert "Undefined variable: lv7" in fails(capsys, "compile", f"{bad}:Chain")
    bad.write_text("import tvm\nEmpty = tvm.IRModule()")
    assert "no Relax function" in fails(capsys, "compile", f"{bad}:Empty")


def test_other_errors_are_one_line_too(capsys, tmp_path, chain):
    assert "softmax_chain" in fails(capsys, "compile", "softmax_chian")
    assert "--assume n=128" in fails(capsys, "compile", chain)
    line = fails(capsys, "compile", chain, "--assume", "n=64", "--no-fuse", "tahn")
    assert "exclude one of tir_exp, add, tir_tanh, sum" in line
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "choose another path" in fails(capsys, "compile", chain, "--out", blocked / "out")


def test_traceback_on_request(capsys):
    assert main(["compile", "none", "--traceback"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "COMMAND"),
        (["compile"], "MODEL"),
        (["compile", "softmax_chain", "--policy", "best"], "choose one of dominator"),
        (["compile", "softmax_chain", "--target", "nvidia/none"], "tag like nvidia/nvidia-a100"),
        (["compile", "softmax_chain", "--target", "llvm"], "no CUDA GPU"),
        (["compile", "softmax_chain", "--max-depth", "0"], "give 1 or more"),
        (["compile", "softmax_chain", "--shared-memory", "48K"], "number of bytes, or opt-in"),
        (["compile", "softmax_chain", "--assume", "n"], "write it like n=128"),
        (["compile", "softmax_chain", "--input", "x=1xn"], "write it like x=1x3x224x224"),
        (["compile", "softmax_chain", "--input", "1x3"], "write it like x=1x3x224x224"),
        (["demo", "softmax_chain"], "unrecognized arguments"),
        (["explain", "softmax_chain", "--why", "exp"], "expected 2 arguments"),
        (["explain", "softmax_chain", "--out", "dir"], "unrecognized arguments"),
    ],
)
def test_usage_errors(capsys, argv, told):
    status, out, lines = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert told in lines[-1]


def test_demo_runs_fused_against_unfused(capsys, monkeypatch):
    monkeypatch.setattr(demo, "_MODEL", "ln_gelu_res")
    status, out, errors = run(capsys, "demo")
    assert (status, errors) == (0, [])
    assert "stock" in out
    assert "largest difference" in out.splitlines()[-1]
    real = demo.run_on_cpu
    results = []

    def one_side_wrong(executable, arrays):
        results.append(real(executable, arrays) * (1 + 1e-2 * len(results)))
        return results[-1]

    monkeypatch.setattr(demo, "run_on_cpu", one_side_wrong)
    assert run(capsys, "demo")[0] == 1


def test_help_does_not_load_tvm():
    code = "import sys; from tvm_fusion import cli; cli.main(sys.argv[1:])"
    check = f"import atexit, sys; atexit.register(lambda: print('tvm' in sys.modules)); {code}"
    done = subprocess.run(
        [sys.executable, "-c", check, "compile", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "False"


def test_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "tvm_fusion", "compile", "none"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "there is no model 'none'" in done.stderr
