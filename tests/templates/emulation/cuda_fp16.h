#pragma once
#include "cuda_runtime.h"

using __half = _Float16;
struct __half2 { __half x, y; };
static inline __half __float2half_rn(float x) { return static_cast<__half>(x); }
static inline float __half2float(__half x) { return static_cast<float>(x); }
static inline __half2 __floats2half2_rn(float x, float y) { return {static_cast<__half>(x), static_cast<__half>(y)}; }
static inline float2 __half22float2(__half2 v) { return {static_cast<float>(v.x), static_cast<float>(v.y)}; }
