# A blocked matmul with every buffer doubled: out[128, 8] = requantise(a[128, 32] @ w[32, 8] + bias), int8.
# Loads, array, vector unit and stores work on different blocks at the same time.
#
# HBM, slices of 256 bytes:
#   0..15  a as [4 row blocks][4 k blocks][32 rows][8 bytes]: one slice per block, number 4*m + k
#   16     w as [4 k blocks][8 rows][8 bytes]
#   17     bias int32 x 8, scale fp32 x 8, 8 unused bytes
#   18..21 out as [4 row blocks][32 rows][8 bytes]
.config tiny

addr r0 base=0 stride0=4 stride1=1            # slice of a
addr r1 base=0x0 stride1=0x100 ring=0x200     # two buffers for blocks of a, in turn
addr r2 base=0x1000 stride1=64                # weight tile of the k block
addr r3 base=0 stride0=256 ring=512           # accumulator rows: one region fills while the other drains
addr r4 base=0x3000 stride0=0x100 ring=0x200  # two buffers for blocks of out
addr r5 base=18 stride0=1                     # slice of out
addr r6 base=0x2000                           # parameters
addr r7 base=16
addr r8 base=17

dma_shape unit=ld row_bytes=256 rows=1
hbm_read_slice hbm=r7 vmem=r2 count=1 signal=mxu
dma_shape unit=ld row_bytes=72 rows=1
hbm_read_slice hbm=r8 vmem=r6 count=1 signal=vpu
dma_shape unit=ld row_bytes=256 rows=1
dma_shape unit=st row_bytes=256 rows=1

feed_shape n0=32 s0=8 segments=1
feed_segment index=0 lo=0 hi=8
vector_shape n2=32 s2=1 d2=8
vector_mode source=acc bias requant=float per_channel lo=-128 hi=127 cols=8
load_params vmem=r6 wait=ld
sync unit=mxu wait=ld

# Both buffers of each kind are free: two tokens from the reader to the writer.
sync unit=mxu signal=ld
sync unit=mxu signal=ld
sync unit=vpu signal=mxu
sync unit=vpu signal=mxu
sync unit=st signal=vpu
sync unit=st signal=vpu

loop 0 count=4 {
  loop 1 count=4 {
    hbm_read_slice hbm=r0 vmem=r1 count=1 wait=mxu signal=mxu
    load_weights vmem=r2 pitch=8 k=8 n=8
    pulse_array vmem=r1 acc=r3 swap acc_mode=first(1) wait=ld,vpu@first(1) signal=ld,vpu@last(1)
  }
  vector src=r3 dst=r4 wait=mxu,st signal=mxu,st
  hbm_write_slice hbm=r5 vmem=r4 count=1 wait=vpu signal=vpu
}
halt
