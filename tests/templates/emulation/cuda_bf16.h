#pragma once
#include "cuda_runtime.h"

struct __nv_bfloat16 { uint16_t bits; };
static inline float __bfloat162float(__nv_bfloat16 x) { return as_bits<float>(static_cast<uint32_t>(x.bits) << 16); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    const uint32_t bits = as_bits<uint32_t>(x);
    return {static_cast<uint16_t>(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
struct __nv_bfloat162 { __nv_bfloat16 x, y; };
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
