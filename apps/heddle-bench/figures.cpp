#include "figures.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>

#include "heddle/core/error.h"

namespace heddle::app {

double median(std::vector<double> samples) {
  const size_t middle = samples.size() / 2;
  std::ranges::nth_element(samples, samples.begin() + static_cast<std::ptrdiff_t>(middle));
  return samples[middle];
}

void print(const Figure& figure) {
  const auto [low, high] = std::ranges::minmax(figure.samples);
  std::cout << std::left << std::setw(40) << figure.name << std::right << std::fixed
            << std::setprecision(2) << std::setw(10) << median(figure.samples) << " " << std::left
            << std::setw(9) << figure.unit << " (" << low << " to " << high << ")" << std::endl;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << "\n";
  file.close();
  HEDDLE_CHECK(file.good(), path, ": cannot write the figures");
}

}  // namespace heddle::app
