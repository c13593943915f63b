// a // b of integers as in Python; a divisor of 0 counts as 1. Most divisors are the same for all threads, and powers
// of two: a shift then stands for the hundred instructions of a division of 64 bits.
template <typename A, typename B>
__device__ __forceinline__ auto floor_quotient(const A a, const B b) {
    using T = decltype(a + b);
    const T by = b == 0 ? 1 : b;
    if (by > 0 && (by & (by - 1)) == 0) return static_cast<T>(static_cast<T>(a) >> (63 - __clzll(by)));
    const T found = a / by;
    return static_cast<T>(found - (found * by != a && (a < 0) != (by < 0)));
}
