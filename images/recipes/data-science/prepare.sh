# matplotlib looks for fonts once and keeps what it found; 2-10 s that the first plot of a sandbox would take.
python3 -c 'import matplotlib.font_manager'
test -n "$(ls "$HOME"/.cache/matplotlib/fontlist-*.json)"
