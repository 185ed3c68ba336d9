"""Plans that notice: what runs is compared with what was expected, and planned anew."""
