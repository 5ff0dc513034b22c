# rounds.gnuplot: cumulative regret and bits against time steps, from `tally export ID --format csv`.
#   gnuplot -e "csv='ID.csv'; svg='rounds.svg'" deploy/pictures/rounds.gnuplot
set terminal svg size 860,360 font "sans-serif,13" background "white"
set output svg
set yrange [0:*]
set datafile separator comma
set key right bottom
set xtics 500
set grid
set xlabel "time step"
set multiplot layout 1,2
set ylabel "cumulative regret"
plot csv using "t":"regret" with linespoints pt 7 ps 0.5 lw 2 lc rgb "#1f5fa8" notitle
set ylabel "bits since the start"
up = 0; down = 0
plot csv using "t":(up = up + column("uplink_payload_bits") / 10, up) with steps lw 2 lc rgb "#b5542a" title "uplink payload, per client", \
     csv using "t":(down = down + column("downlink_payload_bits"), down) with steps lw 2 lc rgb "#3a7d44" title "downlink payload"
unset multiplot
