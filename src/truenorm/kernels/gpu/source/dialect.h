/* The only file that depends on the language: OpenCL C 1.2 and above, CUDA (nvcc, NVRTC), HIP.
 *
 * No compiler may contract a*b + c: where one rounding is meant, FMA says so. Loops over what is
 * in registers are unrolled, since registers have no addresses.
 */
#if defined(FIBERS) /* a C++ compiler for the CPU, in tests */
#define UNROLL
#else
#define UNROLL _Pragma("unroll")
#endif
#if defined(__OPENCL_VERSION__)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
#define KERNEL __kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
/* PoCL shares a local array between threads only in functions that are inlined. */
#define DEVICE static inline __attribute__((always_inline))
#define GLOBAL __global
#define LOCAL __local
#define SHARED __local
#define RESTRICT restrict
#define THREAD ((int)get_local_id(0))
#define BLOCK ((int)get_group_id(0))
#define BLOCKS ((int)get_num_groups(0))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define FMA(a, b, c) fma((double)(a), (double)(b), (double)(c))
#define FMAF(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define SQRT(a) sqrt((double)(a))
#define ABS(a) fabs((double)(a))
#define ABSF(a) fabs((float)(a))
#define BITS_OF_FLOAT(a) as_uint(a)
#define FLOAT_OF_BITS(a) as_float(a)
#define BITS_OF_DOUBLE(a) as_long(a)
#define DOUBLE_OF_BITS(a) as_double(a)
typedef long wide_t;
#else
#if defined(BARE_HIP) /* clang without the headers of ROCm, which is enough to count registers */
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(n, blocks) __attribute__((amdgpu_flat_work_group_size(n, n)))
#define __forceinline__ inline __attribute__((always_inline))
#define THREAD ((int)__builtin_amdgcn_workitem_id_x())
#define BLOCK ((int)__builtin_amdgcn_workgroup_id_x())
#define BLOCKS ((int)(__builtin_amdgcn_grid_size_x() / THREADS))
#define BARRIER                                              \
    do {                                                     \
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
        __builtin_amdgcn_s_barrier();                        \
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); \
    } while (0)
static __device__ __forceinline__ int exchanged(int value, int offset) {
    const int lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
    return __builtin_amdgcn_ds_bpermute((lane ^ offset) << 2, value);
}
#define EXCHANGE(value, offset) exchanged((value), (offset))
#define BITS_OF_FLOAT(a) __builtin_bit_cast(unsigned, (float)(a))
#define FLOAT_OF_BITS(a) __builtin_bit_cast(float, (unsigned)(a))
#define BITS_OF_DOUBLE(a) __builtin_bit_cast(long long, (double)(a))
#define DOUBLE_OF_BITS(a) __builtin_bit_cast(double, (long long)(a))
#else
#define THREAD ((int)threadIdx.x)
#define BLOCK ((int)blockIdx.x)
#define BLOCKS ((int)gridDim.x)
#define BARRIER __syncthreads()
#define BITS_OF_FLOAT(a) __float_as_uint(a)
#define FLOAT_OF_BITS(a) __uint_as_float(a)
#define BITS_OF_DOUBLE(a) __double_as_longlong(a)
#define DOUBLE_OF_BITS(a) __longlong_as_double(a)
#if defined(__HIP__) || defined(__HIPCC_RTC__)
#define EXCHANGE(value, offset) __shfl_xor((value), (offset), 32)
#else
#define EXCHANGE(value, offset) __shfl_xor_sync(0xffffffffu, (value), (offset))
#endif
#endif
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)
#define DEVICE static __device__ __forceinline__ __attribute__((unused))
#define GLOBAL
#define LOCAL
#define SHARED __shared__
#define RESTRICT __restrict__
#if defined(__CUDACC__) && !defined(__HIP__)
#define FMA(a, b, c) __fma_rn((a), (b), (c))
#define FMAF(a, b, c) __fmaf_rn((a), (b), (c))
#define SQRT(a) __dsqrt_rn(a)
#define ABS(a) fabs(a)
#define ABSF(a) fabsf(a)
#else
#define FMA(a, b, c) __builtin_fma((a), (b), (c))
#define FMAF(a, b, c) __builtin_fmaf((a), (b), (c))
#define SQRT(a) __builtin_sqrt(a)
#define ABS(a) __builtin_fabs(a)
#define ABSF(a) __builtin_fabsf(a)
#endif
typedef long long wide_t;
#endif
