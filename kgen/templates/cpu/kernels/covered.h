// How many of TAPS positions from `start` on lie from LOW up to HIGH.
template <int TAPS, int LOW, int HIGH>
__attribute__((always_inline)) inline int covered(const int start) {
    return (start + TAPS < HIGH ? start + TAPS : HIGH) - (start > LOW ? start : LOW);
}
