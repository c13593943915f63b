// a // b of integers as in Python; a divisor of 0 counts as 1. Most divisors are the same for all elements, and powers
// of two: a shift then stands for a division.
template <typename A, typename B>
__attribute__((always_inline)) inline auto floor_quotient(A a, B b) {
    using T = decltype(a + b);
    const T by = b == 0 ? 1 : b;
    if (by > 0 && (by & (by - 1)) == 0) return static_cast<T>(static_cast<T>(a) >> __builtin_ctzll(by));
    const T found = a / by;
    return static_cast<T>(found - (found * by != a && (a < 0) != (by < 0)));
}
