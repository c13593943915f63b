// A bfloat16 in memory, whose value is a float.
struct bfloat16_t {
    __nv_bfloat16 bits;
    bfloat16_t() = default;
    __device__ __forceinline__ explicit bfloat16_t(const float value) : bits(__float2bfloat16_rn(value)) {}
    __device__ __forceinline__ void operator=(const float value) { bits = __float2bfloat16_rn(value); }
    __device__ __forceinline__ operator float() const { return __bfloat162float(bits); }
};
