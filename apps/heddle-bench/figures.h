#pragma once

#include <string>
#include <vector>

namespace heddle::app {

/// What was measured, sample by sample.
struct Figure {
  std::string name, unit;
  std::vector<double> samples;
};

[[nodiscard]] double median(std::vector<double> samples);

/// A line on standard output: the name, the median, and the smallest and largest sample.
void print(const Figure& figure);

/// The date as a record has it, 2026-11-26.
[[nodiscard]] std::string today();

/// Writes an object of JSON. Throws Error where that fails.
void write_file(const std::string& path, const std::string& text);

}  // namespace heddle::app
