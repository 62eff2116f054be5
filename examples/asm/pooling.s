# Pooling in the vector unit, from VMEM to VMEM: a 2x2 maximum, then the mean of what is left.
# max[4, 4, 8] of image[8, 8, 8], mean[8] of max (sum / 16, rounded half away from zero), int8.
#
# HBM, slices of 256 bytes:
#   0, 1  image, 64 pixels (y, x) of 8 channels     2  max, 16 pixels     3  mean
.config tiny

addr r0 base=0
addr r1 base=2
addr r2 base=3
addr r3 base=0x0                    # image
addr r4 base=0x1000                 # max
addr r5 base=0x2000                 # mean

dma_shape unit=ld row_bytes=512 rows=1
hbm_read_slice hbm=r0 vmem=r3 count=2 signal=vpu

# Window n0 x n1: 2 pixels (8 bytes apart) by 2 lines (64 bytes). Outputs n2 x n3: every second pixel and line.
vector_shape n0=2 n1=2 n2=4 n3=4 s0=8 s1=64 s2=16 s3=128 d2=8
vector_mode source=vmem reduce=max d3=32 lo=-128 hi=127 cols=8
vector src=r3 dst=r4 wait=ld signal=st

# 1/16 = 2^30 >> 34. VECTORs run one after the other, so no token is needed between them.
vector_shape n0=4 n1=4 n2=1 n3=1 s0=8 s1=32
vector_mode source=vmem reduce=sum requant=fixed_away multiplier=0x40000000 shift=34 lo=-128 hi=127 cols=8
vector src=r4 dst=r5 signal=st

dma_shape unit=st row_bytes=128 rows=1
hbm_write_slice hbm=r1 vmem=r4 count=1 wait=vpu
dma_shape unit=st row_bytes=8 rows=1
hbm_write_slice hbm=r2 vmem=r5 count=1 wait=vpu
halt
