"""What is read from the text of compiled programs, on a few lines of each kind."""

import pytest

from benchmarks.devices.compiled_programs import (
    attention_flops,
    attention_kind,
    bytes_moved,
    collectives_of,
    computations,
    launched,
    products_in,
    seconds_of,
    transfers_in,
)

pytestmark = pytest.mark.one_backend

PROGRAM = """HloModule jit_step, is_scheduled=true

%product_computation (parameter_0: bf16[64,32], parameter_1: bf16[32,16]) -> f32[64,16] {
  %parameter_0 = bf16[64,32]{1,0} parameter(0)
  %parameter_1 = bf16[32,16]{1,0} parameter(1)
  ROOT %dot.1 = f32[64,16]{1,0} dot(%parameter_0, %parameter_1), CONTRACTED, metadata={op_name="step/dense/dot" id=1}
}

%single_computation (parameter_0.1: f32[64,16], parameter_1.1: f32[16,8]) -> f32[64,8] {
  %parameter_0.1 = f32[64,16]{1,0} parameter(0)
  %parameter_1.1 = f32[16,8]{1,0} parameter(1)
  ROOT %dot.2 = f32[64,8]{1,0} dot(%parameter_0.1, %parameter_1.1), CONTRACTED, metadata={op_name="step/router/dot"}
}

%looked_up (parameter_0.2: f32[1000,16], parameter_1.2: s32[4,1]) -> f32[4,16] {
  %parameter_0.2 = f32[1000,16]{1,0} parameter(0)
  %parameter_1.2 = s32[4,1]{1,0} parameter(1)
  ROOT %gather.1 = f32[4,16]{1,0} gather(%parameter_0.2, %parameter_1.2), offset_dims={1}
}

%body (carry: (s32[], f32[64,8])) -> (s32[], f32[64,8]) {
  %carry = (s32[], f32[64,8]{1,0}) parameter(0)
  %get-tuple-element.1 = f32[64,8]{1,0} get-tuple-element(%carry), index=1
  ROOT %copy.1 = f32[64,8]{1,0} copy(%get-tuple-element.1)
}

ENTRY %main.7 (x: bf16[64,32], w: bf16[32,16], v: f32[16,8], table: f32[1000,16], ids: s32[4,1]) -> f32[64,8] {
  %x = bf16[64,32]{1,0} parameter(0)
  %w = bf16[32,16]{1,0} parameter(1)
  %v = f32[16,8]{1,0} parameter(2)
  %table = f32[1000,16]{1,0} parameter(3)
  %ids = s32[4,1]{1,0} parameter(4)
  %fusion.1 = f32[64,16]{1,0} fusion(%x, %w), kind=kCustom, calls=%product_computation
  %fusion.2 = f32[64,8]{1,0} fusion(%fusion.1, %v), kind=kCustom, calls=%single_computation
  %fusion.3 = f32[4,16]{1,0} fusion(%table, %ids), kind=kLoop, calls=%looked_up
  %bitcast.1 = f32[8,64]{0,1} bitcast(%fusion.2)
  %tuple.1 = (s32[], f32[64,8]{1,0}) tuple(%fusion.2)
  ROOT %while.1 = (s32[], f32[64,8]{1,0}) while(%tuple.1), condition=%condition, body=%body
}
""".replace("CONTRACTED", "lhs_contracting_dims={1}, rhs_contracting_dims={0}")


def entry(text=PROGRAM):
    parts = computations(text)
    return parts, parts["ENTRY"]


def test_products_by_the_dtypes_of_operands_and_results():
    parts, _ = entry()
    (half,) = products_in(parts["product_computation"])
    (single,) = products_in(parts["single_computation"])
    assert (half.operands, half.result, half.flops) == (("bf16", "bf16"), "f32", 2 * 64 * 16 * 32)
    assert half.source == "step/dense/dot"
    assert not half.is_single and single.is_single and single.source == "step/router/dot"


def test_what_runs_by_itself():
    parts, _ = entry()
    operations = [x.operation for _, x in launched(parts)]
    assert operations.count("fusion") == 3
    assert operations.count("copy") == 1  # of the loop
    assert "dot" not in operations and "gather" not in operations


def test_bytes_of_operands_and_results():
    parts, main = entry()
    moved = {name: bytes_moved(parts, main, x) for name, x in main.items()}
    assert moved["fusion.1"] == 2 * 64 * 32 + 2 * 32 * 16 + 4 * 64 * 16
    assert moved["fusion.3"] == 4 * 16 * 4 + 4 * 4 + 4 * 16 * 4  # four rows of the table, not a thousand
    assert moved["bitcast.1"] == moved["tuple.1"] == moved["while.1"] == moved["x"] == 0


def test_a_kernel_takes_as_long_as_its_arithmetic_or_its_bytes():
    parts, main = entry()
    found = seconds_of(parts, dict(peak=1e4, bandwidth=1e30), attended=1.0)
    flops = 2 * 64 * 16 * 32 + 2 * 64 * 8 * 16
    assert found["flops"] == flops and found["seconds"] == pytest.approx(flops / 1e4)
    found = seconds_of(parts, dict(peak=1e30, bandwidth=100.0), attended=1.0)
    copied = 2 * 4 * 64 * 8
    assert found["moved"] == sum(bytes_moved(parts, main, x) for x in main.values()) + copied
    assert found["seconds"] == pytest.approx(found["moved"] / 100)


ATTENTION = """ENTRY %main (q: bf16[2,64,3,16], k: bf16[2,128,3,16]) -> bf16[2,64,3,16] {
  %q = bf16[2,64,3,16]{3,2,1,0} parameter(0)
  %k = bf16[2,128,3,16]{3,2,1,0} parameter(1)
  %a = (OUTPUT, u8[0]{0}) custom-call(%q, %k, %k), custom_call_target="__cudnn$fmhaSoftmax"
  %b = (OUTPUT, u8[0]{0}) custom-call(%q, %k, %k), custom_call_target="__cudnn$fmhaScaleBiasSoftmaxBackward"
  %c = (OUTPUT) custom-call(%q, %k, %k), TRITON, backend_config={x = 8 : i32, name = "_forward_kernel", n = 4}
  %d = (OUTPUT) custom-call(%q, %k, %k), TRITON, backend_config={name = "_backward_kernel"}
  %e = f32[8]{0} custom-call(%q), custom_call_target="xla_ffi_python_cpu_callback"
  ROOT %f = f32[8]{0} custom-call(%q), custom_call_target="__cublas$gemm"
}
""".replace("TRITON", 'custom_call_target="__gpu$xla.gpu.triton"').replace("OUTPUT", "bf16[2,64,3,16]{3,2,1,0}")


def test_calls_of_attention_kernels():
    parts, main = entry(ATTENTION)
    kinds = {name: attention_kind(x) for name, x in main.items()}
    assert kinds["a"][:2] == ("cuDNN", "forward") and kinds["b"][:2] == ("cuDNN", "backward")
    assert kinds["c"][:2] == ("Pallas", "forward") and kinds["d"][:2] == ("Pallas", "backward")
    assert kinds["e"] is None and kinds["f"] is None and kinds["q"] is None
    one = 2 * 2 * 3 * 64 * 128 * 16  # a product for two rows and three heads
    assert [attention_flops(main, main[name]) for name in "abcdf"] == [2 * one, 5 * one, 2 * one, 7 * one, 0]
    assert transfers_in(parts) == 1


COLLECTIVES = """ENTRY %main (x: f32[8]) -> f32[8] {
  %all-reduce-start.1 = (f32[100]{0}, bf16[50]{0}) all-reduce-start(%a, %b), channel_id=1, to_apply=%add
  %all-reduce-done.1 = (f32[100]{0}, bf16[50]{0}) all-reduce-done(%all-reduce-start.1)
  %all-gather-start.1 = (bf16[10,4]{1,0}, bf16[80,4]{1,0}) all-gather-start(%c), channel_id=2, dimensions={0}
  %reduce-scatter.1 = f32[16]{0} reduce-scatter(%d), channel_id=3, dimensions={0}, to_apply=%add
}
"""


def test_collectives():
    found = collectives_of(COLLECTIVES, vocabulary=80)
    assert (found["all_reduce"], found["all_reduce_bytes"]) == (1, 500)
    assert (found["all_gather"], found["all_gather_bytes"], found["vocabulary_gathers"]) == (1, 640, 1)
    assert (found["reduce_scatter"], found["reduce_scatter_bytes"]) == (1, 64)
    assert found["all_to_all"] == found["collective_permute"] == 0
