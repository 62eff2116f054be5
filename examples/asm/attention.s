# One head of causal attention on a chip of bf16: out[64, 64] = softmax(q @ k.T / 8) @ v, row i over positions 0 to i.
#
# HBM, slices of 4096 bytes, 64 rows of 64 bf16 numbers in two of them:
#   0, 1  q         2, 3  k         4, 5  v         6, 7  out
.config v2

addr r0 base=0                      # HBM slices
addr r1 base=2
addr r2 base=4
addr r3 base=6
addr r4 base=0x0                    # VMEM: q, k, v, weights of the softmax, out
addr r5 base=0x10000
addr r6 base=0x20000
addr r7 base=0x30000
addr r8 base=0x40000
addr r9 base=0                      # accumulator rows: scores, sums of the result, largest score, sum
addr r10 base=64
addr r11 base=128
addr r12 base=129

dma_shape unit=ld row_bytes=8192 rows=1
hbm_read_slice hbm=r0 vmem=r4 count=2
hbm_read_slice hbm=r1 vmem=r5 count=2 signal=mxu
hbm_read_slice hbm=r2 vmem=r6 count=2 signal=mxu

# Scores. Rows of k are columns of the tile: 64 array rows, 64 columns of 2 bytes.
feed_shape n0=64 s0=128 segments=1
feed_segment index=0 lo=0 hi=128
load_weights vmem=r5 pitch=128 k=64 n=128 transpose wait=ld
pulse_array vmem=r4 acc=r9 swap signal=vpu
load_weights vmem=r6 pitch=128 k=64 n=128 wait=ld

# Largest score of each row, scaled on the way; row i has i + 1 of them.
pass_shape rows=64 tail=64 masked mask_base=1 mask_step=1
pass_stream stream=source addr=r9 row_step=1
pass_stream stream=result addr=r9 row_step=1
pass_stream stream=reduced addr=r11
pass_mode use_first first_op=mul first_b=k0 k0=0.125 use_reduce reduction=max store
vector_pass wait=mxu

# exp(score - largest) and its sum. What does not count becomes 0.
pass_stream stream=column addr=r11
pass_stream stream=reduced addr=r12
pass_mode use_first first_op=sub first_b=column use_function function=exp use_reduce reduction=sum store
vector_pass

# 1 / sum: 64 numbers, one row.
pass_shape rows=1 tail=64
pass_stream stream=source addr=r12
pass_stream stream=result addr=r12
pass_mode use_function function=reciprocal store
vector_pass

# Weights, as bf16 rows for the array.
pass_shape rows=64 tail=64
pass_stream stream=source addr=r9 row_step=1
pass_stream stream=column addr=r12
pass_stream stream=result addr=r7 memory=vmem format=bf16 row_step=128
pass_mode use_first first_op=mul first_b=column store
vector_pass signal=mxu

pulse_array vmem=r7 acc=r10 swap wait=vpu signal=vpu

pass_stream stream=source addr=r10 row_step=1
pass_stream stream=result addr=r8 memory=vmem format=bf16 row_step=128
pass_mode store
vector_pass wait=mxu signal=st

dma_shape unit=st row_bytes=8192 rows=1
hbm_write_slice hbm=r3 vmem=r8 count=2 wait=vpu
halt
