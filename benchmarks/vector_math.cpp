// Error and speed of kgen/templates/cpu/functions, compiled and driven by vector_math.py.
// Prints one line for each function: name, largest error in ulp, where, how many special values are wrong,
// ns per element of the vector loop and of libm's scalar function.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

namespace vec {
#include "erf.h"
#include "exp_of_rest.h"
#include "exp.h"
#include "expm1.h"
#include "log.h"
#include "log1p.h"
#include "pow.h"
#include "sin_shifted.h"
#include "sin.h"
#include "cos.h"
#include "tanh.h"
// One argument of pow is swept over, the other fixed: to a power that is no integer, and to a base below 1.
__attribute__((always_inline)) inline float pow_x(float x) { return pow(x, 2.7f); }
__attribute__((always_inline)) inline float pow_y(float y) { return pow(0.7f, y); }
}  // namespace vec

namespace exact {
double exp(double x) { return std::exp(x); }
double expm1(double x) { return std::expm1(x); }
double log(double x) { return std::log(x); }
double log1p(double x) { return std::log1p(x); }
double erf(double x) { return std::erf(x); }
double tanh(double x) { return std::tanh(x); }
double sin(double x) { return std::sin(x); }
double cos(double x) { return std::cos(x); }
double pow_x(double x) { return std::pow(x, static_cast<double>(2.7f)); }
double pow_y(double y) { return std::pow(static_cast<double>(0.7f), y); }
}  // namespace exact

namespace scalar {
float exp(float x) { return ::expf(x); }
float expm1(float x) { return ::expm1f(x); }
float log(float x) { return ::logf(x); }
float log1p(float x) { return ::log1pf(x); }
float erf(float x) { return ::erff(x); }
float tanh(float x) { return ::tanhf(x); }
float sin(float x) { return ::sinf(x); }
float cos(float x) { return ::cosf(x); }
float pow_x(float x) { return ::powf(x, 2.7f); }
float pow_y(float y) { return ::powf(0.7f, y); }
}  // namespace scalar

constexpr long BLOCK = 4096;  // its floats stay in the first-level cache
using Loop = void (*)(const float*, float*);

template <float (*function)(float)>
__attribute__((noinline)) void vector_loop(const float* __restrict__ x, float* __restrict__ y) {
#pragma omp simd
    for (long i = 0; i < BLOCK; ++i) y[i] = function(x[i]);
}

template <float (*function)(float)>
__attribute__((noinline)) void scalar_loop(const float* __restrict__ x, float* __restrict__ y) {
    for (long i = 0; i < BLOCK; ++i) y[i] = function(x[i]);
}

struct Error {
    double ulp = 0;
    float at = 0;
    long wrong = 0;  // infinities, NaNs and signs that differ from the exact ones
};

// Units in the last place of a float32 the size of the exact value, subnormals included.
double error_in_ulp(float got, double exact) {
    const int exponent = exact == 0 ? -149 : std::max(std::ilogb(exact), -126) - 23;
    return std::scalbn(std::fabs(got - exact), -exponent);
}

Error measure_error(Loop loop, double (*exact)(double), std::uint64_t stride) {
    constexpr std::uint64_t ALL = std::uint64_t{1} << 32;
    const std::uint64_t samples = (ALL + stride - 1) / stride;
    const auto blocks = static_cast<std::int64_t>((samples + BLOCK - 1) / BLOCK);
    Error worst;
#pragma omp parallel
    {
        Error mine;
        std::vector<float> x(BLOCK), y(BLOCK);
#pragma omp for schedule(dynamic, 64)
        for (std::int64_t block = 0; block < blocks; ++block) {
            for (long i = 0; i < BLOCK; ++i) {
                const std::uint64_t bits = std::min((block * BLOCK + i) * stride, ALL - 1);
                x[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(bits));
            }
            loop(x.data(), y.data());
            for (long i = 0; i < BLOCK; ++i) {
                const double want = exact(x[i]);
                const float rounded = static_cast<float>(want);
                if (std::isnan(rounded) || std::isnan(y[i])) {
                    mine.wrong += std::isnan(rounded) != std::isnan(y[i]);
                    continue;
                }
                // Zero has a sign only where the exact result is zero; what underflows may do so to either.
                mine.wrong += (want != 0 || x[i] == 0) && std::signbit(y[i]) != std::signbit(want);
                if (std::isinf(rounded) || std::isinf(y[i])) {
                    const bool at_threshold = std::fabs(std::fabs(want) / std::numeric_limits<float>::max() - 1) < 1e-7;
                    mine.wrong += y[i] != rounded && !at_threshold;
                    continue;
                }
                const double ulp = error_in_ulp(y[i], want);
                if (ulp > mine.ulp) mine.ulp = ulp, mine.at = x[i];
            }
        }
#pragma omp critical
        {
            worst.wrong += mine.wrong;
            if (mine.ulp > worst.ulp) worst.ulp = mine.ulp, worst.at = mine.at;
        }
    }
    return worst;
}

// The best of many runs over one block of numbers from 0.001 to 4.
double nanoseconds(Loop loop) {
    std::vector<float> x(BLOCK), y(BLOCK);
    for (long i = 0; i < BLOCK; ++i) x[i] = 0.001f + (i % 997) * 0.004f;
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < 1000; ++run) {
        const auto start = std::chrono::steady_clock::now();
        loop(x.data(), y.data());
        asm volatile("" ::: "memory");
        const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
        best = std::min(best, taken.count() / BLOCK);
    }
    return best;
}

void report(const char* name, Loop vector, Loop scalar, double (*exact)(double), std::uint64_t stride) {
    const Error error = stride == 0 ? Error{} : measure_error(vector, exact, stride);
    std::printf("%s %.4f %.9g %ld %.4f %.4f\n", name, error.ulp, error.at, error.wrong, nanoseconds(vector),
                nanoseconds(scalar));
    std::fflush(stdout);
}

// The argument is the step through the bit patterns of all floats: 1 is every float, 0 measures only the speed.
int main(int, char** arguments) {
    const std::uint64_t stride = std::strtoull(arguments[1], nullptr, 10);
#define REPORT(NAME) report(#NAME, vector_loop<vec::NAME>, scalar_loop<scalar::NAME>, exact::NAME, stride);
    REPORT(exp) REPORT(expm1) REPORT(log) REPORT(log1p) REPORT(erf)
    REPORT(tanh) REPORT(sin) REPORT(cos) REPORT(pow_x) REPORT(pow_y)
}
