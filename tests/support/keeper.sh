# Ends what a test run started and removes what it wrote, once the run is gone.
#
# Standard input is a pipe whose other end only the run holds; when the run ends,
# however it ends, the pipe closes. One order a line:
#   process PID SIGNAL    end PID with SIGNAL when the run is gone
#   ended PID             PID was ended already
#   mount PATH            unmount PATH when the run is gone
#   directory PATH        remove PATH when the run is gone
lives() {
  # A zombie has ended, whether its new parent looks after it or not.
  [[ -r /proc/$1/status ]] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

declare -A signals=()
directories=()
mounts=()
while read -r order subject signal; do
  case "$order" in
    process) signals[$subject]=$signal ;;
    ended) unset "signals[$subject]" ;;
    mount) mounts+=("$subject") ;;
    directory) directories+=("$subject") ;;
  esac
done

for process in "${!signals[@]}"; do
  kill "-${signals[$process]}" "$process" 2>/dev/null
done
for process in "${!signals[@]}"; do
  for _ in {1..100}; do
    lives "$process" || continue 2
    sleep 0.1
  done
  kill -KILL "$process" 2>/dev/null
done
for mount in "${mounts[@]}"; do
  umount -l -- "$mount" 2>/dev/null
done
for directory in "${directories[@]}"; do
  rm -rf -- "$directory"
done
