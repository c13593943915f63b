// a % b of integers as in Python, with the sign of b; a divisor of 0 counts as 1. Most divisors are the same for all
// elements, and powers of two: the lower bits then stand for a division.
template <typename A, typename B>
__attribute__((always_inline)) inline auto floor_remainder(A a, B b) {
    using T = decltype(a + b);
    const T by = b == 0 ? 1 : b;
    if (by > 0 && (by & (by - 1)) == 0) return static_cast<T>(a & (by - 1));
    const T rest = a % by;
    return static_cast<T>(rest != 0 && (rest < 0) != (by < 0) ? rest + by : rest);
}
