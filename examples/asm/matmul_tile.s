# One tile on the array: out[16, 8] = requantise(a[16, 8] @ w[8, 8] + bias), int8.
#
# HBM, slices of 256 bytes:
#   0  a, 16 rows of 8 bytes            2  bias int32 x 8, multiplier int32 x 8, shift uint8 x 8
#   1  w, 8 rows (k) of 8 bytes (n)     3  out, 16 rows of 8 bytes (the rest of the slice is 0)
.config tiny

addr r0 base=0                      # HBM slices
addr r1 base=1
addr r2 base=2
addr r3 base=3
addr r4 base=0x0                    # VMEM: each stream in its own 4 KiB region, so that none waits for another
addr r5 base=0x1000
addr r6 base=0x2000
addr r7 base=0x3000
addr r8 base=0                      # accumulator row

# Loads. Every unit that needs the data gets a token when they have arrived.
dma_shape unit=ld row_bytes=64 rows=1
hbm_read_slice hbm=r1 vmem=r5 count=1 signal=mxu
dma_shape unit=ld row_bytes=128 rows=1
hbm_read_slice hbm=r0 vmem=r4 count=1 signal=mxu
dma_shape unit=ld row_bytes=72 rows=1
hbm_read_slice hbm=r2 vmem=r6 count=1 signal=vpu

# Array: 16 rows, one after the other; a row is one run of 8 bytes.
feed_shape n0=16 s0=8 segments=1
feed_segment index=0 lo=0 hi=8
load_weights vmem=r5 pitch=8 k=8 n=8 wait=ld
pulse_array vmem=r4 acc=r8 swap wait=ld signal=vpu

# Vector unit: bias and per-channel fixed-point requantisation on the way to VMEM.
vector_shape n2=16 s2=1 d2=8
vector_mode source=acc bias requant=fixed per_channel zero_point=3 lo=-128 hi=127 cols=8
load_params vmem=r6 wait=ld
vector src=r8 dst=r7 wait=mxu signal=st

dma_shape unit=st row_bytes=128 rows=1
hbm_write_slice hbm=r3 vmem=r7 count=1 wait=vpu
halt
