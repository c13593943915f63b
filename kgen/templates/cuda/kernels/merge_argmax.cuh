// Takes a value and its place into the largest so far: NaN counts as the largest, and of equal values the first is
// taken.
template <typename Place>
__device__ __forceinline__ void merge_argmax(float& max, Place& at, const float other, const long long place) {
    const bool above = other > max || (other != other && max == max);
    const bool level = other == max || (other != other && max != max);
    if (above || (level && place < at)) {
        max = other;
        at = static_cast<Place>(place);
    }
}
