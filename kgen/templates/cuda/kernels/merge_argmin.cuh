// Takes a value and its place into the smallest so far: NaN counts as the smallest, and of equal values the first is
// taken.
template <typename Place>
__device__ __forceinline__ void merge_argmin(float& min, Place& at, const float other, const long long place) {
    const bool above = other < min || (other != other && min == min);
    const bool level = other == min || (other != other && min != min);
    if (above || (level && place < at)) {
        min = other;
        at = static_cast<Place>(place);
    }
}
