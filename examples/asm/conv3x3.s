# A 3x3 convolution with padding, one channel to eight: the feeder builds the array rows from image lines.
# out[8, 8, 8] = clamp(requantise(conv(image[8, 8], w[3, 3, 1, 8]) + bias)), ReLU in the clamp; the image's zero point
# is -5, the result's -10.
#
# Nine taps do not fit in the 8 array rows, so there are two weight tiles: lines 0 and 1 of the kernel (two segments of
# three bytes), then line 2 (one segment), which adds to the same accumulator rows.
#
# HBM, slices of 256 bytes:
#   0  image, 8 lines of 8 bytes        2     bias int32 x 8, 40 unused bytes
#   1  w, 9 rows (ky, kx) of 8 bytes    3, 4  out, 64 rows (y, x) of 8 bytes
.config tiny

addr r0 base=0
addr r1 base=1
addr r2 base=2
addr r3 base=3
addr r4 base=0x100                  # image
addr r5 base=0x1000                 # weights of kernel lines 0 and 1
addr r6 base=0x1030                 # ... of line 2, 6 rows of 8 bytes further
addr r7 base=0x2000                 # parameters
addr r8 base=0x3000                 # result
addr r9 base=0                      # accumulator row

dma_shape unit=ld row_bytes=72 rows=1
hbm_read_slice hbm=r1 vmem=r5 count=1 signal=mxu
dma_shape unit=ld row_bytes=64 rows=1
hbm_read_slice hbm=r0 vmem=r4 count=1 signal=mxu
dma_shape unit=ld row_bytes=72 rows=1
hbm_read_slice hbm=r2 vmem=r7 count=1 signal=vpu

# Output pixel (x, y) starts at the byte of input pixel (x, y). Kernel line ky begins one pixel to the left and ky - 1
# lines further: offset = 8*(ky - 1) - 1. Bytes whose x or y lies outside of the image are not read, but -5.
feed_shape n0=8 n1=8 s0=1 s1=8 segments=2 pad zero_point=-5 x_step=1 y_step=1 line_bytes=8 height=8
feed_segment index=0 lo=0 hi=3 offset=-9 x=-1 y=-1
feed_segment index=1 lo=3 hi=6 offset=-1 x=-1 y=0
load_weights vmem=r5 pitch=8 k=6 n=8 wait=ld
pulse_array vmem=r4 acc=r9 swap wait=ld
feed_shape n0=8 n1=8 s0=1 s1=8 segments=1 pad zero_point=-5 x_step=1 y_step=1 line_bytes=8 height=8
feed_segment index=0 lo=0 hi=3 offset=7 x=-1 y=1
load_weights vmem=r6 pitch=8 k=3 n=8
pulse_array vmem=r4 acc=r9 swap acc_mode=accumulate signal=vpu

vector_shape n2=64 s2=1 d2=8
vector_mode source=acc bias requant=float scale=0.0078125 zero_point=-10 lo=-10 hi=127 cols=8
load_params vmem=r7 wait=ld
vector src=r9 dst=r8 wait=mxu signal=st

dma_shape unit=st row_bytes=512 rows=1
hbm_write_slice hbm=r3 vmem=r8 count=2 wait=vpu
halt
