// Stores four numbers, times a power of two, as two float16 terms each; the low terms lie `apart` elements behind.
__device__ __forceinline__ void store_split_state(const float4 v, const float scale, __half* to, const int apart) {
    uint2 high, low;
    split_pair(make_float2(v.x, v.y), scale, high.x, low.x);
    split_pair(make_float2(v.z, v.w), scale, high.y, low.y);
    *reinterpret_cast<uint2*>(to) = high;
    *reinterpret_cast<uint2*>(to + apart) = low;
}
// The bits of the largest magnitude.
__device__ __forceinline__ unsigned largest_bits(const float4 v) {
    const unsigned magnitude = 0x7fffffffu;
    return max(
        max(__float_as_uint(v.x) & magnitude, __float_as_uint(v.y) & magnitude),
        max(__float_as_uint(v.z) & magnitude, __float_as_uint(v.w) & magnitude)
    );
}
