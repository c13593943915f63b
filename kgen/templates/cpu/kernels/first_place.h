// The first place of a value in a tile; NaN is found where a value is NaN.
static inline int first_place(const float* value, const float wanted, const int width) {
    int place = 0;
    while (place < width - 1 && !(value[place] == wanted || (wanted != wanted && value[place] != value[place]))) {
        ++place;
    }
    return place;
}
